// Package common has the checks, the schemas and the values of the scenarios.
//
// conformance/schema_registry/programs.py describes the command line.
package common

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"

	"github.com/jhump/protoreflect/desc"
	"github.com/jhump/protoreflect/desc/protoparse"
)

// Kinds has the schema type of each file ending, and Endings the file ending of each format.
var (
	Endings    = []string{"avsc", "json", "proto"}
	Kinds      = map[string]string{"avsc": "AVRO", "json": "JSON", "proto": "PROTOBUF"}
	OfFormat   = map[string]string{"avro": "avsc", "json": "json", "protobuf": "proto"}
	References = map[string]string{"avsc": "shop.Order", "json": "http://shop.example/order.json", "proto": "order.proto"}
)

// Order is a value of the second schema. Note is empty in the first one.
type Order struct {
	ID     string `json:"id" avro:"id"`
	Amount int32  `json:"amount" avro:"amount"`
	Note   string `json:"note,omitempty" avro:"note"`
}

// Orders returns the values to write. The first one has the first schema.
func Orders(name string) []Order {
	return []Order{
		{ID: name + "-1", Amount: 1},
		{ID: name + "-2", Amount: 2, Note: "a note"},
		{ID: name + "-ä€", Amount: -1 << 31, Note: "a note"},
	}
}

// Version returns the schema's version of the value at a position.
func Version(position int) int { return min(position+1, 2) }

// Print writes a decoded value for the suite.
func Print(topic string, order Order) {
	line := struct {
		Topic string `json:"topic"`
		Order
	}{topic, order}
	text, err := json.Marshal(line)
	Check(err)
	fmt.Println(string(text))
}

// Check ends the program if there is an error.
func Check(err error) {
	if err != nil {
		panic(err)
	}
}

// Must returns the result of a call that must succeed.
func Must[T any](value T, err error) T {
	Check(err)
	return value
}

// Same ends the program if the values differ.
func Same(what string, got, want any) {
	if !reflect.DeepEqual(got, want) {
		panic(fmt.Sprintf("%s: %#v instead of %#v", what, got, want))
	}
}

// SameJSON ends the program if the texts differ as JSON values.
func SameJSON(what, got, want string) {
	var left, right any
	Check(json.Unmarshal([]byte(got), &left))
	Check(json.Unmarshal([]byte(want), &right))
	Same(what, left, right)
}

// Text returns a schema.
func Text(directory, name string) string {
	return string(Must(os.ReadFile(filepath.Join(directory, name))))
}

// Message returns the descriptor of the message Order of a version.
func Message(directory string, version int) *desc.MessageDescriptor {
	return message(directory, fmt.Sprintf("order_%d.proto", version), "shop.Order")
}

// Event returns the descriptor of a message with imports.
func Event(directory string) *desc.MessageDescriptor {
	return message(directory, "event.proto", "shop.Event")
}

func message(directory, file, name string) *desc.MessageDescriptor {
	parser := protoparse.Parser{ImportPaths: []string{directory}}
	return Must(parser.ParseFiles(file))[0].FindMessage(name)
}

// Number returns the integer of a word.
func Number(word string) int { return Must(strconv.Atoi(word)) }

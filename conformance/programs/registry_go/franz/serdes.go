package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"conformance/common"

	"github.com/hamba/avro/v2"
	"github.com/jhump/protoreflect/desc"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
)

// options returns the functions that encode and decode orders with one schema.
func (s *scenarios) options(form string, text string, version int) []sr.EncodingOpt {
	switch form {
	case "json":
		return []sr.EncodingOpt{sr.EncodeFn(json.Marshal), sr.DecodeFn(json.Unmarshal)}
	case "avro":
		schema := avro.MustParse(text)
		return []sr.EncodingOpt{
			sr.EncodeFn(func(v any) ([]byte, error) { return avro.Marshal(schema, v) }),
			sr.DecodeFn(func(b []byte, v any) error { return avro.Unmarshal(schema, b, v) }),
		}
	}
	message := common.Message(s.directory, version)
	return []sr.EncodingOpt{
		sr.Index(0),
		sr.EncodeFn(func(v any) ([]byte, error) { return marshal(message, v) }),
		sr.DecodeFn(func(b []byte, v any) error { return unmarshal(message, b, v) }),
	}
}

func marshal(message *desc.MessageDescriptor, v any) ([]byte, error) {
	made := dynamicpb.NewMessage(message.UnwrapMessage())
	common.Check(protojson.Unmarshal(common.Must(json.Marshal(v)), made))
	return proto.Marshal(made)
}

func unmarshal(message *desc.MessageDescriptor, data []byte, v any) error {
	made := dynamicpb.NewMessage(message.UnwrapMessage())
	common.Check(proto.Unmarshal(data, made))
	return json.Unmarshal(common.Must(protojson.Marshal(made)), v)
}

func (s *scenarios) write(bootstrap, form, topic, name string) {
	client := common.Must(kgo.NewClient(seeds(bootstrap), kgo.DefaultProduceTopic(topic)))
	defer client.Close()
	for position, order := range common.Orders(name) {
		version := common.Version(position)
		schema := s.schema(fmt.Sprintf("order_%d", version), common.OfFormat[form])
		found := s.create(topic+"-value", schema)
		serde := sr.NewSerde()
		options := s.options(form, schema.Schema, version)
		serde.Register(found.ID, common.Order{}, options...)
		record := kgo.Record{Value: common.Must(serde.Encode(order))}
		common.Check(client.ProduceSync(background, &record).FirstErr())
	}
}

func (s *scenarios) read(bootstrap, form string, count int, topic string) {
	start := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
	client := common.Must(kgo.NewClient(seeds(bootstrap), kgo.ConsumePartitions(start)))
	defer client.Close()
	var serde sr.Serde
	for count > 0 {
		fetches := client.PollFetches(background)
		common.Check(fetches.Err())
		for _, record := range fetches.Records() {
			s.know(&serde, form, topic, record.Value)
			var order common.Order
			common.Check(serde.Decode(record.Value, &order))
			common.Print(topic, order)
			count--
		}
	}
}

// know registers the schema of a record, if it is new.
func (s *scenarios) know(serde *sr.Serde, form, topic string, value []byte) {
	id, _, err := serde.DecodeID(value)
	common.Check(err)
	if serde.IsRegistered(id) {
		return
	}
	subject := sr.WithParams(background, sr.Subject(topic+"-value"))
	found := common.Must(s.client.SchemaByID(subject, id))
	serde.Register(id, common.Order{}, s.options(form, found.Schema, 2)...)
}

func seeds(bootstrap string) kgo.Opt {
	return kgo.SeedBrokers(strings.Split(bootstrap, ",")...)
}

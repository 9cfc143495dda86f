package main

import (
	"encoding/json"
	"log"
	"math/rand"
	"os"
	"syscall"
	"unsafe"
)

const (
	clockMonotonic   = 1
	gaveUp           = 3
	valuesPerProcess = 1_000_000
)

// settings has the fields of conformance/histories/settings.py that this client uses, as JSON.
type settings struct {
	Bootstrap       string   `json:"bootstrap"`
	Process         int      `json:"process"`
	Mode            string   `json:"mode"`
	Seed            int64    `json:"seed"`
	Topics          []string `json:"topics"`
	Partitions      int      `json:"partitions"`
	Group           string   `json:"group"`
	TransactionalID string   `json:"transactional_id"`
	GroupProtocol   string   `json:"group_protocol"`
	Assignor        string   `json:"assignor"`
	AbortShare      float64  `json:"abort_share"`
}

// partitionOf returns the topic and the partition of a key.
func (s *settings) partitionOf(key int) (string, int32) {
	return s.Topics[key/s.Partitions], int32(key % s.Partitions)
}

func (s *settings) key(topic string, partition int32) int {
	for n, name := range s.Topics {
		if name == topic {
			return n*s.Partitions + int(partition)
		}
	}
	log.Fatalf("not a topic of this run: %s", topic)
	return -1
}

type fields map[string]any

// recorder writes the events of this process, one operation at a time.
type recorder struct {
	process int
	number  int
	f       string
}

func (r *recorder) begin(f string, more fields) {
	r.number++
	r.f = f
	r.event("invoke", more)
}

func (r *recorder) event(kind string, more fields) {
	line := fields{"type": kind, "time": monotonicNs()}
	line["process"], line["op"], line["f"], line["protocol"] = r.process, r.number, r.f, 2
	for name, value := range more {
		line[name] = value
	}
	text, err := json.Marshal(line)
	check(err)
	_, err = os.Stdout.Write(append(text, '\n'))
	check(err)
}

// giveUp ends the operation and the process.
func (r *recorder) giveUp(kind string, reason error, more fields) {
	all := fields{"error": reason.Error()}
	for name, value := range more {
		all[name] = value
	}
	r.event(kind, all)
	os.Exit(gaveUp)
}

// monotonicNs reads the clock that all processes of the machine share. Go does not export its own
// monotonic clock.
func monotonicNs() int64 {
	var now syscall.Timespec
	_, _, failed := syscall.Syscall(
		syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	if failed != 0 {
		log.Fatal(failed)
	}
	return now.Nano()
}

// planSends chooses keys and new values. One key often has several sends.
func planSends(dice *rand.Rand, keys int, next *int, most int) [][2]int {
	chosen := dice.Perm(keys)[:min(2, keys)]
	planned := make([][2]int, 1+dice.Intn(most))
	for n := range planned {
		planned[n] = [2]int{chosen[dice.Intn(len(chosen))], *next}
		*next++
	}
	return planned
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

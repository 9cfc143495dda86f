// A load of franz-go, as a separate process. It prints one JSON object.
//
//	franz_go produce ADDRESS TOPIC RECORDS SIZE BATCH_BYTES
//	franz_go fetch   ADDRESS TOPIC RECORDS
//
// The producer is idempotent and waits for acks=all, as franz-go does by default. It does not
// compress: the values are random bytes.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	deadline = 120 * time.Second
	linger   = 5 * time.Millisecond
)

type result struct {
	Records int     `json:"records"`
	Bytes   int     `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

func main() {
	if len(os.Args) < 5 {
		fail(fmt.Errorf("usage: franz_go produce|fetch ADDRESS TOPIC RECORDS [SIZE BATCH_BYTES]"))
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	address, topic, records := os.Args[2], os.Args[3], number(4)
	var found result
	switch os.Args[1] {
	case "produce":
		found = produce(ctx, address, topic, records, number(5), number(6))
	case "fetch":
		found = fetch(ctx, address, topic, records)
	default:
		fail(fmt.Errorf("unknown load %q", os.Args[1]))
	}
	check(json.NewEncoder(os.Stdout).Encode(found))
}

// produce measures from the first record to the last response. A record before them makes the
// client learn the leader and its producer id.
func produce(ctx context.Context, address, topic string, records, size, batch int) result {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(address),
		kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchMaxBytes(int32(batch)),
		kgo.ProducerLinger(linger),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedRecords(200_000),
	)
	check(err)
	defer client.Close()
	value := make([]byte, size)
	rand.New(rand.NewSource(1)).Read(value)
	check(client.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr())
	var failed atomic.Pointer[error]
	delivered := func(_ *kgo.Record, err error) {
		if err != nil {
			failed.CompareAndSwap(nil, &err)
		}
	}
	began := time.Now()
	for range records {
		client.Produce(ctx, &kgo.Record{Value: value}, delivered)
	}
	check(client.Flush(ctx))
	seconds := time.Since(began).Seconds()
	if err := failed.Load(); err != nil {
		fail(*err)
	}
	return result{records, records * size, seconds}
}

// fetch measures from the creation of the client to the last record of partition 0.
func fetch(ctx context.Context, address, topic string, records int) result {
	began := time.Now()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(address),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
			topic: {0: kgo.NewOffset().AtStart()},
		}),
	)
	check(err)
	defer client.Close()
	found, size := 0, 0
	for found < records {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			found++
			size += len(record.Value)
		})
	}
	return result{found, size, time.Since(began).Seconds()}
}

func number(place int) int {
	if place >= len(os.Args) {
		fail(fmt.Errorf("argument %d is missing", place))
	}
	value, err := strconv.Atoi(os.Args[place])
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "franz_go:", err)
	os.Exit(1)
}

// A member of a group on segmentio/kafka-go, which has neither static members nor transactions.
//
//	kafkago consume BOOTSTRAP TOPIC GROUP ""   prints "partition offset" of each record
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"
)

// sessionTimeout returns the session timeout of members: 6 s unless the environment has another one.
func sessionTimeout() time.Duration {
	ms, err := strconv.Atoi(os.Getenv("ODRADEK_CONFORMANCE_SESSION_MS"))
	if err != nil {
		ms = 6000
	}
	return time.Duration(ms) * time.Millisecond
}

func main() {
	a := os.Args
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:           strings.Split(a[2], ","),
		Topic:             a[3],
		GroupID:           a[4],
		StartOffset:       kafka.FirstOffset,
		MinBytes:          1,
		MaxBytes:          1 << 20,
		MaxWait:           250 * time.Millisecond,
		SessionTimeout:    sessionTimeout(),
		HeartbeatInterval: time.Second,
	})
	for {
		message, err := reader.FetchMessage(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(message.Partition, message.Offset)
		if err := reader.CommitMessages(context.Background(), message); err != nil {
			log.Fatal(err)
		}
	}
	if err := reader.Close(); err != nil {
		log.Fatal(err)
	}
}

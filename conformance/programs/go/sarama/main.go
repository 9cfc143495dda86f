// A member of a group, and transactions that abort at random, on Sarama.
//
//	sarama consume BOOTSTRAP TOPIC GROUP INSTANCE   prints "partition offset" of each record
//	sarama transact BOOTSTRAP TOPIC ID COUNT SEED SOURCE GROUP   prints "commit N" or "abort N"
//	sarama fence BOOTSTRAP TOPIC ID   prints "fenced" with the error
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

// sessionTimeout returns the session timeout of members: 6 s unless the environment has another one.
func sessionTimeout() time.Duration {
	ms, err := strconv.Atoi(os.Getenv("ODRADEK_CONFORMANCE_SESSION_MS"))
	if err != nil {
		ms = 6000
	}
	return time.Duration(ms) * time.Millisecond
}

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Interval = 200 * time.Millisecond
	c.Consumer.Group.Session.Timeout = sessionTimeout()
	c.Consumer.Group.Heartbeat.Interval = time.Second
	return c
}

const abortable = sarama.ProducerTxnFlagAbortableError | sarama.ProducerTxnFlagFatalError

// kills: brokers are killed during the run.
var kills = os.Getenv("ODRADEK_CONFORMANCE_KILLS") != ""

type member struct{}

func (member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (member) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (member) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			fmt.Println(message.Partition, message.Offset)
			s.MarkMessage(message, "")
		case <-s.Context().Done():
			return nil
		}
	}
}

func consume(bootstrap, topic, group, instance string) {
	c := config()
	if instance != "" {
		c.Consumer.Group.InstanceId = instance
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	consumer, err := sarama.NewConsumerGroup(strings.Split(bootstrap, ","), group, c)
	check(err)
	for ctx.Err() == nil {
		check(consumer.Consume(ctx, []string{topic}, member{}))
	}
	check(consumer.Close())
}

func producer(bootstrap, id string) sarama.SyncProducer {
	c := config()
	c.Producer.Idempotent = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Producer.Transaction.ID = id
	c.Net.MaxOpenRequests = 1
	made, err := sarama.NewSyncProducer(strings.Split(bootstrap, ","), c)
	// The broker is aborting the open transaction of the previous producer. Sarama does not retry.
	for tries := 0; errors.Is(err, sarama.ErrConcurrentTransactions) && tries < 100; tries++ {
		time.Sleep(100 * time.Millisecond)
		made, err = sarama.NewSyncProducer(strings.Split(bootstrap, ","), c)
	}
	check(err)
	return made
}

func send(p sarama.SyncProducer, topic string, n int) error {
	for i := 0; i < 5; i++ {
		value := sarama.StringEncoder(fmt.Sprintf("%d-%d", n, i))
		message := &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder("k"), Value: value}
		if _, _, err := p.SendMessage(message); err != nil {
			return err
		}
	}
	return nil
}

// retried repeats a call while brokers are killed, unless the producer has one of the final states.
func retried(p sarama.SyncProducer, final sarama.ProducerTxnStatusFlag, call func() error) error {
	err := call()
	for tries := 0; kills && err != nil && p.TxnStatus()&final == 0 && tries < 300; tries++ {
		time.Sleep(100 * time.Millisecond)
		err = call()
	}
	return err
}

func transact(bootstrap, topic, id string, count, seed int, source, group string) {
	p, dice := producer(bootstrap, id), rand.New(rand.NewSource(int64(seed)))
	for n := 0; n < count; n++ {
		check(p.BeginTxn())
		aborts := dice.Intn(3) == 0
		err := send(p, topic, n)
		if err == nil {
			offsets := []*sarama.PartitionOffsetMetadata{{Partition: 0, Offset: int64(n + 1)}}
			to := map[string][]*sarama.PartitionOffsetMetadata{source: offsets}
			err = retried(p, abortable, func() error { return p.AddOffsetsToTxn(to, group) })
		}
		if err == nil && !aborts {
			err = retried(p, abortable, p.CommitTxn)
		}
		// The death of a broker may end a transaction with an error. Then it is aborted.
		if err != nil || aborts {
			if err != nil && !kills {
				log.Fatal(err)
			}
			check(retried(p, sarama.ProducerTxnFlagFatalError, p.AbortTxn))
			fmt.Println("abort", n)
		} else {
			fmt.Println("commit", n)
		}
	}
	check(p.Close())
}

func fence(bootstrap, topic, id string) {
	old := producer(bootstrap, id)
	check(old.BeginTxn())
	check(send(old, topic, 0))
	young := producer(bootstrap, id)
	check(young.BeginTxn())
	check(send(young, topic, 1))
	check(young.CommitTxn())
	if err := old.CommitTxn(); err != nil {
		fmt.Println("fenced", err)
	}
	check(young.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	a := os.Args
	switch a[1] {
	case "consume":
		consume(a[2], a[3], a[4], a[5])
	case "transact":
		count, _ := strconv.Atoi(a[5])
		seed, _ := strconv.Atoi(a[6])
		transact(a[2], a[3], a[4], count, seed, a[7], a[8])
	case "fence":
		fence(a[2], a[3], a[4])
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

const (
	deadline           = 25 * time.Second
	openDeadline       = 60 * time.Second
	transactionTimeout = 15 * time.Second
	pollWait           = 150 * time.Millisecond
	recordsPerPollMax  = 50
	sendsMax           = 4
)

// Some transactions stop waiting for a delivery after a second, and abort.
var patience = []time.Duration{time.Second, transactionTimeout}

// The step at which a transaction that is to be aborted is aborted.
const (
	toCommit = iota
	inFlight
	delivered
	withOffsets
)

// send is one value that is sent to a key. Without offset and error its result is not known yet.
type send struct {
	key, value int
	offset     *int64
	err        error
}

type transactor struct {
	config  *settings
	record  recorder
	dice    *rand.Rand
	session *kgo.GroupTransactSession
	value   int
	reads   [][3]int64

	// The library's goroutines write these fields.
	lock  sync.Mutex
	sends []send
	moved map[int]bool
}

func open(config *settings, dice *rand.Rand) *transactor {
	t := &transactor{config: config, dice: dice, moved: map[int]bool{}}
	t.record = recorder{process: config.Process, number: -1}
	t.value = config.Process * valuesPerProcess
	t.record.begin("open", nil)
	topics := config.Topics
	if dice.Float64() < 0.3 {
		topics = []string{topics[dice.Intn(len(topics))]}
	}
	var err error
	t.session, err = kgo.NewGroupTransactSession(t.options(topics)...)
	check(err)
	ctx, done := context.WithTimeout(context.Background(), openDeadline)
	defer done()
	if _, _, err := t.session.Client().ProducerID(ctx); err != nil {
		t.record.giveUp("info", err, nil)
	}
	t.record.event("ok", nil)
	t.record.begin("subscribe", nil)
	t.record.event("ok", fields{"topics": topics})
	return t
}

func (t *transactor) options(topics []string) []kgo.Opt {
	onMove := func(_ context.Context, _ *kgo.Client, keys map[string][]int32) { t.onMove(keys) }
	return []kgo.Opt{
		kgo.SeedBrokers(strings.Split(t.config.Bootstrap, ",")...),
		kgo.Dialer(dial),
		kgo.ClientID(fmt.Sprintf("process-%d", t.config.Process)),
		kgo.MinVersions(secondProtocol()),
		kgo.RetryBackoffFn(func(tries int) time.Duration {
			return time.Duration(min(30*tries, 300)) * time.Millisecond
		}),
		kgo.RetryTimeout(deadline),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.MetadataMaxAge(5 * time.Second),
		kgo.TransactionalID(t.config.TransactionalID),
		kgo.TransactionTimeout(transactionTimeout),
		kgo.RecordDeliveryTimeout(patience[t.dice.Intn(len(patience))]),
		kgo.ProducerLinger([]time.Duration{0, 2, 5}[t.dice.Intn(3)] * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumerGroup(t.config.Group),
		kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.SessionTimeout(6 * time.Second),
		kgo.HeartbeatInterval(500 * time.Millisecond),
		t.assignor(),
		kgo.OnPartitionsAssigned(onMove),
		kgo.OnPartitionsRevoked(onMove),
		kgo.OnPartitionsLost(onMove),
	}
}

// secondProtocol excludes the request versions of the first protocol: Produce, TxnOffsetCommit, EndTxn.
func secondProtocol() *kversion.Versions {
	least := new(kversion.Versions)
	least.SetMaxKeyVersion(int16(kmsg.Produce), 12)
	least.SetMaxKeyVersion(int16(kmsg.TxnOffsetCommit), 5)
	least.SetMaxKeyVersion(int16(kmsg.EndTxn), 5)
	return least
}

func (t *transactor) assignor() kgo.Opt {
	if t.config.GroupProtocol == "consumer" {
		return kgo.ServerSideBalancer()
	}
	switch t.config.Assignor {
	case "roundrobin":
		return kgo.Balancers(kgo.RoundRobinBalancer())
	case "cooperative-sticky":
		return kgo.Balancers(kgo.CooperativeStickyBalancer())
	}
	return kgo.Balancers(kgo.RangeBalancer())
}

func (t *transactor) close() { t.session.Close() }

func (t *transactor) onMove(partitions map[string][]int32) {
	t.lock.Lock()
	defer t.lock.Unlock()
	for topic, numbers := range partitions {
		for _, number := range numbers {
			t.moved[t.config.key(topic, number)] = true
		}
	}
}

// transaction polls and sends in any mix, and ends with a commit or an abort.
func (t *transactor) transaction() {
	steps := t.plan()
	t.record.begin("txn", fields{"sends": planned(steps), "group": t.config.Group})
	t.reads, t.sends = nil, nil
	doomed := toCommit
	if t.dice.Float64() < t.config.AbortShare {
		doomed = inFlight + t.dice.Intn(3)
	}
	if err := t.session.Begin(); err != nil {
		t.record.giveUp("fail", err, t.seen())
	}
	for _, step := range steps {
		if step == nil {
			t.poll()
		} else {
			t.send(step[0], step[1])
		}
	}
	ctx, done := context.WithTimeout(context.Background(), deadline)
	defer done()
	if doomed == inFlight {
		t.abort(ctx, "by choice")
		return
	}
	if err := t.session.Client().Flush(ctx); err != nil {
		t.record.giveUp("fail", err, t.seen())
	}
	if err := t.undelivered(); err != nil {
		t.abort(ctx, err.Error())
		return
	}
	t.end(ctx, doomed)
}

func (t *transactor) end(ctx context.Context, doomed int) {
	if doomed == withOffsets {
		t.commitOffsets(ctx)
	}
	if doomed != toCommit {
		t.abort(ctx, "by choice")
		return
	}
	seen := t.seen()
	seen["positions"] = t.positions()
	t.record.event("committing", seen)
	committed, err := t.session.End(ctx, kgo.TryCommit)
	if err != nil {
		t.record.giveUp("info", err, t.seen())
	}
	if !committed {
		t.aborted("the session did not commit")
		return
	}
	// A rebalance may have happened since, so the event reports the moved keys again.
	t.record.event("ok", t.ended())
}

func (t *transactor) abort(ctx context.Context, reason string) {
	if _, err := t.session.End(ctx, kgo.TryAbort); err != nil {
		t.record.giveUp("fail", errors.Join(errors.New(reason), err), t.seen())
	}
	t.aborted(reason)
}

// aborted records an abort. The session has reset the keys that it still owns to the positions at the
// begin of the transaction.
func (t *transactor) aborted(reason string) {
	sought := map[int]int64{}
	seen := t.ended()
	for _, read := range t.reads {
		key := int(read[0])
		if _, known := sought[key]; !known {
			sought[key] = read[1]
		}
	}
	for _, key := range seen["moved"].([]int) {
		delete(sought, key)
	}
	seen["sought"], seen["error"] = sought, reason
	t.record.event("fail", seen)
}

// plan returns the steps of a transaction. A step is a send, or nil for a poll.
func (t *transactor) plan() []*[2]int {
	var steps []*[2]int
	chosen := planSends(t.dice, len(t.config.Topics)*t.config.Partitions, &t.value, sendsMax)
	if t.dice.Float64() >= 0.15 {
		for n := range chosen {
			steps = append(steps, &chosen[n])
		}
	}
	steps = append(steps, make([]*[2]int, []int{0, 1, 1, 2}[t.dice.Intn(4)])...)
	t.dice.Shuffle(len(steps), func(a, b int) { steps[a], steps[b] = steps[b], steps[a] })
	return steps
}

func planned(steps []*[2]int) [][2]int {
	sends := [][2]int{}
	for _, step := range steps {
		if step != nil {
			sends = append(sends, *step)
		}
	}
	return sends
}

// poll waits once and takes all fetched records. The library retries failed fetches.
func (t *transactor) poll() {
	ctx, done := context.WithTimeout(context.Background(), pollWait)
	defer done()
	t.session.PollRecords(ctx, recordsPerPollMax).EachRecord(func(r *kgo.Record) {
		value, err := strconv.ParseInt(string(r.Value), 10, 64)
		check(err)
		key := int64(t.config.key(r.Topic, r.Partition))
		t.reads = append(t.reads, [3]int64{key, r.Offset, value})
	})
}

func (t *transactor) send(key, value int) {
	t.lock.Lock()
	index := len(t.sends)
	t.sends = append(t.sends, send{key: key, value: value})
	t.lock.Unlock()
	topic, partition := t.config.partitionOf(key)
	r := &kgo.Record{Topic: topic, Partition: partition, Value: strconv.AppendInt(nil, int64(value), 10)}
	t.session.Produce(context.Background(), r, func(r *kgo.Record, err error) {
		t.lock.Lock()
		defer t.lock.Unlock()
		t.sends[index].err = err
		if err == nil {
			t.sends[index].offset = &r.Offset
		}
	})
}

// undelivered returns the error of the first failed send.
func (t *transactor) undelivered() error {
	t.lock.Lock()
	defer t.lock.Unlock()
	for _, each := range t.sends {
		if each.err != nil {
			return each.err
		}
	}
	return nil
}

// commitOffsets sends the offsets of a transaction that is then aborted. A session sends offsets only
// when it commits. Without a send the library does not know that a transaction has to be ended.
func (t *transactor) commitOffsets(ctx context.Context) {
	positions := t.positions()
	id, epoch, err := t.session.Client().ProducerID(ctx)
	if len(t.sends) == 0 || len(positions) == 0 || err != nil {
		return
	}
	request := kmsg.NewPtrTxnOffsetCommitRequest()
	request.TransactionalID, request.Group = t.config.TransactionalID, t.config.Group
	request.ProducerID, request.ProducerEpoch = id, epoch
	request.MemberID, request.Generation = t.session.Client().GroupMetadata()
	for n, topic := range t.config.Topics {
		of := kmsg.NewTxnOffsetCommitRequestTopic()
		of.Topic = topic
		for key, position := range positions {
			if key/t.config.Partitions == n {
				one := kmsg.NewTxnOffsetCommitRequestTopicPartition()
				_, one.Partition = t.config.partitionOf(key)
				one.Offset = position
				of.Partitions = append(of.Partitions, one)
			}
		}
		if len(of.Partitions) > 0 {
			request.Topics = append(request.Topics, of)
		}
	}
	// The transaction is aborted, with and without an error.
	_, _ = request.RequestWith(ctx, t.session.Client())
}

// positions returns the next offset of each key that was read.
func (t *transactor) positions() map[int]int64 {
	found := map[int]int64{}
	for _, read := range t.reads {
		found[int(read[0])] = read[1] + 1
	}
	return found
}

// seen returns the reads and sends of the operation, and the keys moved since the last operation.
func (t *transactor) seen() fields {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.sight()
}

// ended returns the same and ends the operation: keys that move later belong to the next operation.
func (t *transactor) ended() fields {
	t.lock.Lock()
	defer t.lock.Unlock()
	seen := t.sight()
	clear(t.moved)
	return seen
}

func (t *transactor) sight() fields {
	sends := [][4]any{}
	for _, each := range t.sends {
		status := "info"
		if each.err == nil && each.offset != nil {
			status = "ok"
		}
		sends = append(sends, [4]any{each.key, each.value, each.offset, status})
	}
	moved := []int{}
	for key := range t.moved {
		moved = append(moved, key)
	}
	reads := append([][3]int64{}, t.reads...)
	return fields{"reads": reads, "moved": moved, "sends": sends}
}

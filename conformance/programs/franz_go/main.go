// A transactional client of the checker of histories on franz-go, as a process.
//
//	transactor SETTINGS
//
// The counterpart of conformance/histories/transactor.py, which see for what a transaction does
// and history.py for the lines on stdout: this one speaks the second version of the transaction
// protocol (KIP-890) or none at all. It always subscribes, because franz-go puts offsets into
// transactions for members of a group alone. A line on stdin, or its end, stops it.
package main

import (
	"bufio"
	"encoding/json"
	"math/rand"
	"os"
	"time"
)

const pauseMax = 30 * time.Millisecond

func main() {
	var told settings
	check(json.Unmarshal([]byte(os.Args[1]), &told))
	stop := make(chan struct{})
	go func() {
		bufio.NewReader(os.Stdin).ReadString('\n')
		close(stop)
	}()
	dice := rand.New(rand.NewSource(told.Seed*1_000_003 + int64(told.Process)))
	client := open(&told, dice)
	for {
		client.transaction()
		select {
		case <-stop:
			client.close()
			return
		case <-time.After(time.Duration(dice.Int63n(int64(pauseMax)))):
		}
	}
}

// A transactional client of the history checker on franz-go, as a process.
//
//	transactor SETTINGS
//
// The counterpart of conformance/histories/transactor.py, which describes the transactions.
// conformance/histories/history.py describes the lines on stdout. This client speaks only the second
// version of the transaction protocol (KIP-890). It always subscribes, because franz-go adds offsets
// to transactions only for members of a group. A line on stdin, or its end, stops the client.
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
	var config settings
	check(json.Unmarshal([]byte(os.Args[1]), &config))
	stop := make(chan struct{})
	go func() {
		bufio.NewReader(os.Stdin).ReadString('\n')
		close(stop)
	}()
	dice := rand.New(rand.NewSource(config.Seed*1_000_003 + int64(config.Process)))
	client := open(&config, dice)
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

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// resetAtEnd is a connection whose end reads as a reset. Behind the proxy every dial succeeds, also
// when the broker is down. If the connection ends before the first response, franz-go assumes a wrong
// TLS setting and fails. After a reset it retries.
type resetAtEnd struct{ net.Conn }

func (c resetAtEnd) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	if errors.Is(err, io.EOF) {
		err = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	}
	return n, err
}

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return resetAtEnd{conn}, nil
}

// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"net"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// oneMessage is a stream that receives one message and then waits for its end.
type oneMessage struct {
	grpc.Stream
	ctx      context.Context
	received bool
}

func (s *oneMessage) RecvMsg(m any) error {
	if !s.received {
		s.received = true
		m.(*wrapperspb.BytesValue).Value = []byte("late answer")
		return nil
	}
	<-s.ctx.Done()
	return s.ctx.Err()
}

// What is carried ends with its stream, also while it has something for a
// connection that nobody reads any more.
func TestCarryEndsWithItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		near, far := net.Pipe()
		defer near.Close()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			carry(ctx, &oneMessage{ctx: ctx}, far)
		}()
		synctest.Wait() // it writes
		cancel()
		<-ended
	})
}

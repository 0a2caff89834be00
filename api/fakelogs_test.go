// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"io"

	"github.com/moby/swarmkit/v2/api"
	"google.golang.org/grpc"
)

// Logs implements cluster.Cluster.
func (c *fakeCluster) Logs() api.LogsClient { return fakeLogs{c} }

type fakeLogs struct{ c *fakeCluster }

func (f fakeLogs) SubscribeLogs(_ context.Context, in *api.SubscribeLogsRequest, _ ...grpc.CallOption) (api.Logs_SubscribeLogsClient, error) {
	messages, err := f.c.subscribed(in)
	return &fakeSubscription{messages: messages, err: err}, nil
}

// fakeSubscription gives one message at a time, and then its end.
type fakeSubscription struct {
	api.Logs_SubscribeLogsClient
	messages []api.LogMessage
	err      error
}

func (f *fakeSubscription) Recv() (*api.SubscribeLogsMessage, error) {
	if len(f.messages) == 0 {
		if f.err != nil {
			return nil, f.err
		}
		return nil, io.EOF
	}
	next := f.messages[:1]
	f.messages = f.messages[1:]
	return &api.SubscribeLogsMessage{Messages: next}, nil
}

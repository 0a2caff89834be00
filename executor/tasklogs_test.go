// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"testing"
	"time"

	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"

	"satld/jail"
)

func TestLogQuery(t *testing.T) {
	now, early := time.Unix(2000, 0).UTC(), time.Unix(1000, 0).UTC()
	since := &gogotypes.Timestamp{Seconds: 1000}
	for _, c := range []struct {
		options api.LogSubscriptionOptions
		want    jail.LogQuery
		refused bool
	}{
		{api.LogSubscriptionOptions{}, jail.LogQuery{Stdout: true, Stderr: true, Tail: -1}, false},
		{api.LogSubscriptionOptions{Streams: []api.LogStream{api.LogStreamStderr}, Tail: -11, Since: since},
			jail.LogQuery{Stderr: true, Tail: 10, Since: early}, false},
		{api.LogSubscriptionOptions{Tail: -1}, jail.LogQuery{Stdout: true, Stderr: true, Tail: 0}, false},
		{api.LogSubscriptionOptions{Tail: -1, Follow: true, Since: since}, jail.LogQuery{Stdout: true, Stderr: true, Tail: -1, Follow: true, Since: now}, false},
		{api.LogSubscriptionOptions{Tail: 3}, jail.LogQuery{}, true},
	} {
		got, err := logQuery(c.options, now)
		if c.refused != (err != nil) || err == nil && got != c.want {
			t.Errorf("%+v: %+v, %v", c.options, got, err)
		}
	}
}

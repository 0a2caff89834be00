// SPDX-License-Identifier: BSD-2-Clause

//go:build linux || freebsdhost

package jail

import (
	"bytes"
	"context"
	"testing"
)

func TestLifecycle(t *testing.T) {
	n := newNode(t)
	ctx := context.Background()
	s := n.spec(`echo out; echo err >&2; read x; exit 7`)
	s.OpenStdin = true
	s.StdinOnce = true
	pid := n.create(s)
	if _, running, err := n.Running(ctx, s.ID); err != nil || running {
		t.Fatalf("created and running: %v, %v", running, err)
	}
	at, err := n.Start(ctx, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	again, err := n.Start(ctx, s.ID)
	if err != nil || !again.Equal(at) {
		t.Fatalf("second start: %v, %v, want %v", again, err, at)
	}
	if got, running, err := n.Running(ctx, s.ID); err != nil || !running || got != pid {
		t.Fatalf("running: %d %v %v, want pid %d", got, running, err, pid)
	}
	if err := n.Attach(ctx, s.ID, bytes.NewReader(nil), nil, nil); err != nil {
		t.Fatal(err)
	}
	if e := n.wait(s.ID); e.Code != 7 || e.OOMKilled {
		o, er := n.output(s.ID)
		t.Fatalf("exit %+v, want 7; %q %q", e, o, er)
	}
	if out, errs := n.output(s.ID); out != "out\n" || errs != "err\n" {
		t.Fatalf("output %q, %q", out, errs)
	}
}

func TestProbeRuns(t *testing.T) {
	n := newNode(t)
	s := n.spec(`sleep 1000`)
	n.start(s)
	var out bytes.Buffer
	started := 0
	code, err := n.RunProbe(context.Background(), s.ID, []string{"sh", "-c", "echo hello; exit 3"}, &out, func() { started++ })
	if err != nil || code != 3 || out.String() != "hello\n" || started != 1 {
		t.Fatalf("probe: %d, %v, %q, started %d", code, err, out.String(), started)
	}
}

// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"io"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"satld/executor"
	"satld/jail"
)

// fakeContainers stubs executor.Containers: a nil field answers ErrNotFound.
type fakeContainers struct {
	list    func() []executor.Snapshot
	get     func(string) (executor.Snapshot, error)
	create  func(context.Context, executor.CreateRequest) (string, []string, error)
	start   func(context.Context, string) error
	stop    func(context.Context, string, *int, string) error
	restart func(context.Context, string, *int, string) error
	kill    func(context.Context, string, string) error
	remove  func(context.Context, string, bool, bool) error
	rename  func(context.Context, string, string) error
	pause   func(context.Context, string) error
	unpause func(context.Context, string) error
	wait    func(context.Context, string, container.WaitCondition) (<-chan executor.WaitResult, error)
	logs    func(context.Context, string, jail.LogQuery, func(jail.LogLine) error) error
	attach  func(context.Context, string, io.Reader, io.Writer, io.Writer) error
	resize  func(context.Context, string, uint16, uint16) error
	exec    func(context.Context, string, jail.ExecSpec) (jail.Process, error)
	top     func(context.Context, string, string) ([]string, [][]string, error)
	size    func(context.Context, string) (int64, int64, error)
}

func noContainer(id string) error {
	return errdefs.ErrNotFound.WithMessage("No such container: " + id)
}

func (f *fakeContainers) List() []executor.Snapshot {
	if f.list == nil {
		return nil
	}
	return f.list()
}

func (f *fakeContainers) Get(id string) (executor.Snapshot, error) {
	if f.get != nil {
		return f.get(id)
	}
	for _, c := range f.List() {
		if c.ID == id || c.Name == id || strings.HasPrefix(c.ID, id) {
			return c, nil
		}
	}
	return executor.Snapshot{}, noContainer(id)
}

func (f *fakeContainers) Create(ctx context.Context, req executor.CreateRequest) (string, []string, error) {
	if f.create == nil {
		return "", nil, errdefs.ErrNotImplemented
	}
	return f.create(ctx, req)
}

func (f *fakeContainers) Start(ctx context.Context, id string) error {
	if f.start == nil {
		return noContainer(id)
	}
	return f.start(ctx, id)
}

func (f *fakeContainers) Stop(ctx context.Context, id string, grace *int, signal string) error {
	if f.stop == nil {
		return noContainer(id)
	}
	return f.stop(ctx, id, grace, signal)
}

func (f *fakeContainers) Restart(ctx context.Context, id string, grace *int, signal string) error {
	if f.restart == nil {
		return noContainer(id)
	}
	return f.restart(ctx, id, grace, signal)
}

func (f *fakeContainers) Kill(ctx context.Context, id, signal string) error {
	if f.kill == nil {
		return noContainer(id)
	}
	return f.kill(ctx, id, signal)
}

func (f *fakeContainers) Remove(ctx context.Context, id string, force, volumes bool) error {
	if f.remove == nil {
		return noContainer(id)
	}
	return f.remove(ctx, id, force, volumes)
}

func (f *fakeContainers) Rename(ctx context.Context, id, name string) error {
	if f.rename == nil {
		return noContainer(id)
	}
	return f.rename(ctx, id, name)
}

func (f *fakeContainers) Pause(ctx context.Context, id string) error {
	if f.pause == nil {
		return noContainer(id)
	}
	return f.pause(ctx, id)
}

func (f *fakeContainers) Unpause(ctx context.Context, id string) error {
	if f.unpause == nil {
		return noContainer(id)
	}
	return f.unpause(ctx, id)
}

func (f *fakeContainers) Wait(ctx context.Context, id string, c container.WaitCondition) (<-chan executor.WaitResult, error) {
	if f.wait == nil {
		return nil, noContainer(id)
	}
	return f.wait(ctx, id, c)
}

func (f *fakeContainers) Logs(ctx context.Context, id string, q jail.LogQuery, each func(jail.LogLine) error) error {
	if f.logs == nil {
		return noContainer(id)
	}
	return f.logs(ctx, id, q, each)
}

func (f *fakeContainers) Attach(ctx context.Context, id string, stdin io.Reader, stdout, stderr io.Writer) error {
	if f.attach == nil {
		return noContainer(id)
	}
	return f.attach(ctx, id, stdin, stdout, stderr)
}

func (f *fakeContainers) Resize(ctx context.Context, id string, w, h uint16) error {
	if f.resize == nil {
		return noContainer(id)
	}
	return f.resize(ctx, id, w, h)
}

func (f *fakeContainers) Exec(ctx context.Context, id string, spec jail.ExecSpec) (jail.Process, error) {
	if f.exec == nil {
		return nil, noContainer(id)
	}
	return f.exec(ctx, id, spec)
}

func (f *fakeContainers) Top(ctx context.Context, id, args string) ([]string, [][]string, error) {
	if f.top == nil {
		return nil, nil, noContainer(id)
	}
	return f.top(ctx, id, args)
}

func (f *fakeContainers) Size(ctx context.Context, id string) (int64, int64, error) {
	if f.size == nil {
		return 0, 0, noContainer(id)
	}
	return f.size(ctx, id)
}

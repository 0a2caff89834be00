// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"satld/jail/logfile"
	"satld/jail/shim"
)

// Runtime is implemented here.
var _ Runtime = (*Manager)(nil)

// The files of a container's directory, besides those of package shim.
const (
	configFile = "config.json"
	pidFile    = "pid"
	errorFile  = "runtime.log"
)

func (m *Manager) file(id, name string) string { return filepath.Join(m.dir.Container(id), name) }

// checkID keeps what is not an ID out of paths and command lines: the form
// that both runtimes take, FreeBSD's jail names included (no dots).
func checkID(id string) error {
	if len(id) == 0 || len(id) > 128 {
		return invalid("container ID %q: 1 to 128 characters", id)
	}
	for _, c := range id {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') || id[0] == '-' {
			return invalid("container ID %q: letters, digits, - and _ only", id)
		}
	}
	return nil
}

// Create: see Runtime.
func (m *Manager) Create(ctx context.Context, spec Spec) (int, error) {
	if err := checkSpec(spec); err != nil {
		return 0, err
	}
	if why, _ := m.shim.Away(); why != nil {
		return 0, fmt.Errorf("container %s is not made: %w", spec.ID[:min(len(spec.ID), 12)], why)
	}
	release, err := m.takeTurn(ctx, spec.ID)
	if err != nil {
		return 0, err
	}
	defer release()
	if err := m.clear(ctx, spec.ID); err != nil {
		return 0, fmt.Errorf("remove what an earlier container %s left: %w", spec.ID, err)
	}
	pid, err := m.create(ctx, spec)
	if err != nil {
		// Also when ctx is done: a container that was half made is taken down.
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		if cerr := m.clear(back, spec.ID); cerr != nil {
			m.log.Warn("half a container is left, to be removed by the next create or delete", "task_id", spec.TaskID, "container", spec.ID, "error", cerr)
		} else if errors.Is(err, errShimLost) {
			err = fmt.Errorf("%w: %w", ErrUnmade, err)
		}
		return 0, err
	}
	return pid, nil
}

func checkSpec(spec Spec) error {
	if err := checkID(spec.ID); err != nil {
		return err
	}
	if len(spec.Args) == 0 || spec.Args[0] == "" {
		return invalid("no command specified")
	}
	if st, err := os.Stat(spec.Rootfs); err != nil || !st.IsDir() || !filepath.IsAbs(spec.Rootfs) {
		return invalid("container %s: its root %q is not a directory (%v)", spec.ID, spec.Rootfs, err)
	}
	if spec.Cwd != "" && !filepath.IsAbs(spec.Cwd) {
		return invalid("the working directory %q is invalid, it needs to be an absolute path", spec.Cwd)
	}
	for _, mnt := range spec.Mounts {
		if mnt.Type != "bind" && mnt.Type != "tmpfs" {
			return invalid("mount type unknown: %q", mnt.Type)
		}
		if !filepath.IsAbs(mnt.Target) || filepath.Clean(mnt.Target) == "/" {
			return invalid("invalid mount path: %q: it must be absolute and below the root", mnt.Target)
		}
	}
	for _, f := range spec.Files {
		if !filepath.IsAbs(f.Target) || filepath.Clean(f.Target) == "/" {
			return invalid("invalid path of a file: %q: it must be absolute and below the root", f.Target)
		}
	}
	return nil
}

func (m *Manager) create(ctx context.Context, spec Spec) (int, error) {
	who, err := lookUser(spec.Rootfs, spec.User, spec.Groups)
	if err != nil {
		return 0, err
	}
	config, err := m.driver.config(m.withFiles(spec), who)
	if err != nil {
		return 0, err
	}
	b, err := json.Marshal(config)
	if err != nil {
		return 0, fmt.Errorf("container %s: %w", spec.ID, err)
	}
	if err := m.host.begin(ctx, spec); err != nil {
		return 0, err
	}
	if err := m.placeFiles(ctx, spec); err != nil {
		return 0, err
	}
	bundle := m.dir.Container(spec.ID)
	if err := os.Mkdir(bundle, 0o700); err != nil {
		return 0, fmt.Errorf("make the bundle of container %s: %w", spec.ID, err)
	}
	if err := os.WriteFile(m.file(spec.ID, configFile), b, 0o600); err != nil {
		return 0, fmt.Errorf("write the bundle of container %s: %w", spec.ID, err)
	}
	size := spec.Size.orDefault()
	req := shim.CreateRequest{
		Rows: size.Rows, Columns: size.Columns,
		Argv:    m.driver.create(spec.ID, bundle, m.file(spec.ID, pidFile), m.file(spec.ID, errorFile), spec.TTY),
		PidFile: m.file(spec.ID, pidFile),
		Errors:  m.file(spec.ID, errorFile),
		Timeout: runtimeLimit,
		Init: shim.Init{
			End: m.ending(spec.ID), TTY: spec.TTY, Stdin: spec.OpenStdin, StdinOnce: spec.StdinOnce,
			LogMaxSize: spec.LogMaxSize, LogMaxFiles: spec.LogMaxFiles,
		},
	}
	var pid int
	done := m.host.creating()
	err = m.withShim(ctx, func() (err error) {
		pid, err = m.shim.Create(ctx, spec.ID, req)
		return err
	})
	done()
	if err == nil {
		if err := m.host.made(ctx, spec); err != nil {
			return 0, err
		}
		return pid, m.fillFiles(ctx, spec)
	}
	if shim.IsKind(err, shim.KindRuntime) {
		if words := m.createWords(spec.ID); len(words) > 0 {
			return 0, m.driver.failure(words)
		}
	}
	var refusal *shim.Error
	if !errors.As(err, &refusal) && !errors.Is(err, shim.ErrSilent) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errShimLost, err)
	}
	return 0, fmt.Errorf("create container %s: %w", spec.ID, err)
}

// createWords is what the runtime said when it could not make a container: in
// its own log, or on the stderr that it had, which is the container's.
func (m *Manager) createWords(id string) []byte {
	if words, err := os.ReadFile(m.file(id, errorFile)); err == nil && len(words) > 0 {
		return words
	}
	r := logfile.NewReader(m.dir.Logs(id))
	defer r.Close()
	var words []byte
	for {
		p, err := r.Next()
		if err != nil { // the end, or as much as can be read
			return words
		}
		if p.Stream == logfile.Stderr {
			words = append(words, p.Data...)
		}
	}
}

// ending is the host's command for it with its program's path: the shim looks
// for none.
func (m *Manager) ending(id string) []string {
	argv := m.host.ending(id)
	if len(argv) == 0 {
		return nil
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		m.log.Warn("what a container leaves behind is ended by its deletion only", "container", id, "error", err)
		return nil
	}
	return append([]string{path}, argv[1:]...)
}

// Start: see Runtime.
func (m *Manager) Start(ctx context.Context, id string) (time.Time, error) {
	if err := checkID(id); err != nil {
		return time.Time{}, err
	}
	release, err := m.takeTurn(ctx, id)
	if err != nil {
		return time.Time{}, err
	}
	defer release()
	if err := m.exists(id); err != nil {
		return time.Time{}, err
	}
	req := m.driver.start(id)
	req.Timeout = runtimeLimit
	var at time.Time
	err = m.again(ctx, func() (err error) {
		at, err = m.shim.Start(ctx, id, req)
		return err
	})
	switch {
	case err == nil:
		return at, nil
	case shim.IsKind(err, shim.KindNotFound), shim.IsKind(err, shim.KindEnded):
		if st, ok, rerr := m.dir.ReadStarted(id); ok && rerr == nil {
			return st.At, nil
		}
		return time.Time{}, &StartError{ExitCode: 128, Text: "container " + id + " ended before it was started"}
	default:
		return time.Time{}, fmt.Errorf("start container %s: %w", id, err)
	}
}

// While the shim is away, a first process that was found gone so many times, so
// long apart, is given up: the shim would have written down its end long ago.
const (
	unseenLooks = 3
	unseenEvery = time.Second
)

// Wait: see Runtime.
func (m *Manager) Wait(ctx context.Context, id string) (Exit, error) {
	if err := checkID(id); err != nil {
		return Exit{}, err
	}
	nudges, stop := m.await(id)
	defer stop()
	for looks := 0; ; {
		if e, ok, err := m.dir.ReadExit(id); ok || err != nil {
			return Exit{Code: e.Code, At: e.At, OOMKilled: e.OOMKilled}, err
		}
		if err := m.exists(id); err != nil {
			return Exit{}, err
		}
		init, made, err := m.dir.ReadInit(id)
		if err != nil {
			return Exit{}, err // its end may never be seen
		}
		var look <-chan time.Time
		if away, _ := m.shim.Away(); away == nil {
			looks = 0
		} else { // whoever is to write down the end does not: see for ourselves
			if ticks, err := shim.StartTicks(init.Pid); made && (err != nil || ticks != init.Ticks) {
				if looks++; looks > unseenLooks {
					return Exit{}, fmt.Errorf("container %s has ended and nobody saw how: %w", id, away)
				}
			}
			look = time.After(unseenEvery)
		}
		select {
		case <-nudges:
		case <-look:
		case <-ctx.Done():
			return Exit{}, ctx.Err()
		}
	}
}

// AwaitGone: see Runtime.
func (m *Manager) AwaitGone(ctx context.Context, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	nudges, stop := m.await(id)
	defer stop()
	for {
		if _, live, err := m.live(id); err != nil || !live {
			return err
		}
		select {
		case <-nudges:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Kill: see Runtime.
func (m *Manager) Kill(ctx context.Context, id string, sig int) error {
	if err := checkID(id); err != nil {
		return err
	}
	init, live, err := m.live(id)
	if errors.Is(err, shim.ErrDamaged) {
		if init, live = m.look(ctx, id); live {
			err = nil
		}
	}
	if err != nil || !live {
		return err
	}
	if err := signalInit(init, sig); err != nil {
		return fmt.Errorf("send signal %d to container %s: %w", sig, id, err)
	}
	return nil
}

// Delete: see Runtime.
func (m *Manager) Delete(ctx context.Context, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	release, err := m.takeTurn(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	return m.remove(ctx, id)
}

// remove ends a container. Every step looks at what is there, so that it can
// be done again from the beginning after a crash at any of them.
func (m *Manager) remove(ctx context.Context, id string) error {
	if err := m.again(ctx, func() error { return m.shim.Settle(ctx, id) }); err != nil { // a create that an earlier daemon asked for
		return fmt.Errorf("delete container %s: %w", id, err)
	}
	// No command begins in it from here on, and those that run end first.
	defer m.deleting.add(id)()
	if err := m.attempts.abort(ctx, id); err != nil {
		return fmt.Errorf("end the probes of container %s: %w", id, err)
	}
	init, live, err := m.live(id)
	damaged := errors.Is(err, shim.ErrDamaged)
	if damaged {
		init, live = m.look(ctx, id)
	} else if err != nil && !isNotFound(err) {
		return err
	}
	if live {
		if err := m.host.thaw(init.Pid); err != nil {
			m.log.Warn("thaw before the end", "container", id, "error", err)
		}
		if err := signalInit(init, 9); err != nil {
			return fmt.Errorf("kill container %s: %w", id, err)
		}
	}
	if live && !damaged { // of a damaged record the shim may know nothing, and nobody the status
		if err := m.awaitExit(ctx, id, init); err != nil {
			return fmt.Errorf("kill container %s: %w", id, err)
		}
	}
	if err := m.host.end(ctx, id); err != nil {
		return err
	}
	m.probes.forget(id)
	if err := m.again(ctx, func() error { return m.shim.Forget(ctx, id) }); err != nil {
		return fmt.Errorf("delete container %s: %w", id, err)
	}
	if err := m.exists(id); err != nil {
		return nil
	}
	// What goes first may make the room that the rest needs.
	if err := m.removeFiles(id, pidFile, errorFile, "stdin", "stdout", "stderr", "console.sock"); err != nil {
		return err
	}
	// Whoever waits learns that there will be no exit status.
	if err := m.dir.WriteExit(id, shim.Exit{Code: -1, At: time.Now()}); err != nil {
		return fmt.Errorf("delete container %s: %w", id, err)
	}
	m.nudge(id)
	// The bundle's config is the last to go: List reads off it that the
	// deletion was not finished.
	return m.removeFiles(id, configFile)
}

func (m *Manager) removeFiles(id string, names ...string) error {
	for _, name := range names {
		if err := os.Remove(m.file(id, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("delete container %s: %w", id, err)
		}
	}
	return nil
}

// awaitExit waits until the shim wrote down the end, or, should it not hold
// the container, until the process is gone.
func (m *Manager) awaitExit(ctx context.Context, id string, init shim.Init) error {
	nudges, stop := m.await(id)
	defer stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for gone := 0; ; {
		if _, ok, err := m.dir.ReadExit(id); ok || errors.Is(err, shim.ErrDamaged) {
			return nil
		} else if err != nil {
			return err
		}
		select {
		case <-nudges:
		case <-tick.C:
			// The shim reaps within a moment and takes at most some seconds
			// for the rest of the output; later it will not.
			if ticks, err := shim.StartTicks(init.Pid); err != nil || ticks != init.Ticks {
				if gone++; gone > 100 {
					return nil
				}
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// clear is Delete and Forget.
func (m *Manager) clear(ctx context.Context, id string) error {
	if err := m.remove(ctx, id); err != nil {
		return err
	}
	return m.forget(id)
}

// Forget: see Runtime.
func (m *Manager) Forget(ctx context.Context, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	release, err := m.takeTurn(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	if _, live, err := m.live(id); err == nil && live {
		return fmt.Errorf("forget container %s: it is to be deleted first", id)
	}
	return m.forget(id)
}

func (m *Manager) forget(id string) error {
	if err := os.RemoveAll(m.dir.Container(id)); err != nil {
		return fmt.Errorf("forget container %s: %w", id, err)
	}
	m.nudge(id)
	return nil
}

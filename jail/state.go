// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"satld/jail/shim"
)

// exists tells a container that was created and not forgotten.
func (m *Manager) exists(id string) error {
	_, err := os.Lstat(m.dir.Container(id))
	if errors.Is(err, fs.ErrNotExist) {
		return notFound(id)
	}
	return err
}

// Running: see Runtime. A container that was created and not started does not
// run: its first process is still the runtime's.
func (m *Manager) Running(ctx context.Context, id string) (int, bool, error) {
	if err := checkID(id); err != nil {
		return 0, false, err
	}
	init, live, err := m.live(id)
	if err != nil || !live {
		return 0, false, err
	}
	_, started, err := m.dir.ReadStarted(id)
	return init.Pid, started, err
}

// live reads a container's first process and tells whether it lives. Its error
// is shim.ErrDamaged where nobody can tell.
func (m *Manager) live(id string) (shim.Init, bool, error) {
	if _, ended, err := m.dir.ReadExit(id); ended || errors.Is(err, shim.ErrDamaged) {
		return shim.Init{}, false, nil // the file comes with the end
	} else if err != nil {
		return shim.Init{}, false, err
	}
	init, ok, err := m.dir.ReadInit(id)
	if err != nil {
		return init, false, err
	}
	if !ok {
		return init, false, m.exists(id)
	}
	ticks, err := shim.StartTicks(init.Pid)
	return init, err == nil && ticks == init.Ticks, nil
}

// look finds the first process of a container whose record of it is damaged: by
// the pid that the runtime wrote, if that is one of the container's.
func (m *Manager) look(ctx context.Context, id string) (shim.Init, bool) {
	pid, err := shim.ReadPid(m.file(id, pidFile))
	if err != nil {
		return shim.Init{}, false
	}
	ticks, err := shim.StartTicks(pid)
	if err != nil {
		return shim.Init{}, false
	}
	pids, err := m.host.pids(ctx, id)
	return shim.Init{Pid: pid, Ticks: ticks}, err == nil && slices.Contains(pids, pid)
}

// List: see Runtime. Also what was half made or half deleted is in it.
func (m *Manager) List(ctx context.Context) ([]string, error) {
	var ids []string
	for _, dir := range []string{m.driver.stateDir(), m.dir.Containers()} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list containers: %w", err)
		}
		for _, e := range entries {
			id := e.Name()
			if checkID(id) != nil {
				continue
			}
			if dir == m.dir.Containers() {
				_, err := os.Lstat(m.file(id, configFile))
				if _, deleted, _ := m.dir.ReadExit(id); err != nil && deleted {
					continue
				}
			}
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// process reads the process of a container's bundle.
func (m *Manager) process(id string) (*specs.Spec, error) {
	b, err := os.ReadFile(m.file(id, configFile))
	if errors.Is(err, fs.ErrNotExist) {
		if err := m.exists(id); err != nil {
			return nil, err
		}
		return nil, notRunning(id)
	}
	if err != nil {
		return nil, fmt.Errorf("read the bundle of container %s: %w", id, err)
	}
	var c specs.Spec
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("read the bundle of container %s: %w", id, err)
	}
	return &c, nil
}

// SPDX-License-Identifier: BSD-2-Clause

package world

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Running is the exit code of a call that has not ended, or that became what
// it runs (`ocijail exec` without --detach, jexec).
const Running = -1

// OperatorEnv marks a call that is not logged, and that no fault hits.
const OperatorEnv = "FAKEFREEBSD_OPERATOR"

// Call is one call of a tool.
type Call struct {
	Tool  string
	Args  []string
	Stdin string // of pfctl -f -
	Exit  int
}

// String is the command line.
func (c Call) String() string { return strings.Join(append([]string{c.Tool}, c.Args...), " ") }

// entry is a line of the log: the begin of a call, or its end.
type entry struct {
	ID   string
	Call *Call `json:",omitempty"`
	Exit int
}

const callsFile = "calls.jsonl"

// Log is the log of calls as one call has it: open, so that it can be written
// also from within a jail.
type Log struct {
	file *os.File
	id   string
}

// Begin writes down that a call began; id tells it apart from all others.
func Begin(dir, id string, c Call) (*Log, error) {
	f, err := os.OpenFile(filepath.Join(dir, callsFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE, fileMode)
	if err != nil {
		return nil, fmt.Errorf("log a call: %w", err)
	}
	l := &Log{f, id}
	return l, l.write(entry{ID: id, Call: &c})
}

// End writes down how it ended; a nil Log is of a call that is not logged.
func (l *Log) End(exit int) error {
	if l == nil {
		return nil
	}
	return l.write(entry{ID: l.id, Exit: exit})
}

func (l *Log) write(e entry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err := l.file.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("log a call: %w", err)
	}
	return nil
}

// Calls reads the log, in the order in which the calls began.
func Calls(dir string) ([]Call, error) {
	data, err := os.ReadFile(filepath.Join(dir, callsFile))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Call
	at := make(map[string]int)
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, len(data)+1)
	for lines.Scan() {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("read the log of calls: %w", err)
		}
		if e.Call != nil {
			at[e.ID] = len(out)
			e.Call.Exit = Running
			out = append(out, *e.Call)
		} else if i, ok := at[e.ID]; ok {
			out[i].Exit = e.Exit
		}
	}
	return out, lines.Err()
}

func contains(line, match string) bool { return strings.Contains(line, match) }

// SPDX-License-Identifier: BSD-2-Clause

// Package entry is what the daemon and satl-init, its helper inside a
// container, say to each other. satl-init is started for every probe, so that
// this package imports next to nothing.
package entry

import "errors"

// Version is of the whole protocol. Both sides come from one build; a daemon
// that finds another helper beside it must say so and not guess.
const Version = 1

// Descriptors the helper starts with, besides stdio, which is the command's.
const (
	ControlFD = 3 // a stream socket to the daemon: a Request comes, Reports go; its end means kill everything
	LeafFD    = 4 // the directory of the command's own cgroup (v2), if Request.Leaf
	KillFD    = 5 // cgroup.kill of that group, if Request.Kill
	TasksFD   = 6 // the first of Request.Tasks files of v1 cgroups to be in, tasks
)

// Request is what to run. The helper is in the container's namespaces already.
type Request struct {
	Argv, Env  []string
	Cwd        string
	UID, GID   uint32
	Groups     []uint32
	Bounding   uint64 // capabilities, as masks
	Effective  uint64
	Permitted  uint64
	Inherit    uint64
	Ambient    uint64
	NoNewPrivs bool
	Rlimits    []Rlimit
	Leaf       bool // LeafFD is there
	Kill       bool // KillFD is there; otherwise children are looked for in /proc
	Tasks      uint32
}

// Rlimit is for prlimit(2).
type Rlimit struct {
	Resource   uint32
	Soft, Hard uint64
}

// Kinds of Report.
const (
	Started = 'S' // the command runs; Value is its pid in the container
	Exited  = 'X' // it ended and nothing it started lives; Value is the status as wait(2) gives it
	Failed  = 'E' // it could not be run; Text says why
)

// Report is what the helper says.
type Report struct {
	Kind  byte
	Value uint32
	Text  string
}

var errShort = errors.New("message cut short")

// Encode gives a message: a length of 4 bytes, then so many bytes.
func (r *Request) Encode() []byte {
	e := enc{b: make([]byte, 4, 4096)}
	e.u32(Version)
	e.strs(r.Argv)
	e.strs(r.Env)
	e.str(r.Cwd)
	e.u32(r.UID)
	e.u32(r.GID)
	e.u32(uint32(len(r.Groups)))
	for _, g := range r.Groups {
		e.u32(g)
	}
	for _, c := range []uint64{r.Bounding, r.Effective, r.Permitted, r.Inherit, r.Ambient} {
		e.u64(c)
	}
	e.flag(r.NoNewPrivs)
	e.u32(uint32(len(r.Rlimits)))
	for _, l := range r.Rlimits {
		e.u32(l.Resource)
		e.u64(l.Soft)
		e.u64(l.Hard)
	}
	e.flag(r.Leaf)
	e.flag(r.Kill)
	e.u32(r.Tasks)
	return e.done()
}

// DecodeRequest reads what Encode wrote, without the length.
func DecodeRequest(b []byte) (*Request, error) {
	d := dec{b: b}
	if v := d.u32(); d.bad || v != Version {
		return nil, errors.New("satl-init is not of the same build as satld")
	}
	r := &Request{Argv: d.strs(), Env: d.strs(), Cwd: d.str(), UID: d.u32(), GID: d.u32()}
	for n := d.count(4); n > 0; n-- {
		r.Groups = append(r.Groups, d.u32())
	}
	for _, c := range []*uint64{&r.Bounding, &r.Effective, &r.Permitted, &r.Inherit, &r.Ambient} {
		*c = d.u64()
	}
	r.NoNewPrivs = d.flag()
	for n := d.count(20); n > 0; n-- {
		r.Rlimits = append(r.Rlimits, Rlimit{d.u32(), d.u64(), d.u64()})
	}
	r.Leaf, r.Kill, r.Tasks = d.flag(), d.flag(), d.u32()
	if d.bad {
		return nil, errShort
	}
	return r, nil
}

// Encode gives a message, as that of Request.
func (r Report) Encode() []byte {
	e := enc{b: make([]byte, 4, 64)}
	e.b = append(e.b, r.Kind)
	e.u32(r.Value)
	e.str(r.Text)
	return e.done()
}

// DecodeReport reads what Encode wrote, without the length.
func DecodeReport(b []byte) (Report, error) {
	if len(b) == 0 {
		return Report{}, errShort
	}
	d := dec{b: b[1:]}
	r := Report{Kind: b[0], Value: d.u32(), Text: d.str()}
	if d.bad {
		return r, errShort
	}
	return r, nil
}

// Length is a message's, from its first 4 bytes; more than MaxLength is none.
func Length(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

// MaxLength is above what execve(2) takes of arguments and environment.
const MaxLength = 8 << 20

type enc struct{ b []byte }

func (e *enc) u32(v uint32) {
	e.b = append(e.b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
}

func (e *enc) u64(v uint64) {
	e.u32(uint32(v))
	e.u32(uint32(v >> 32))
}

func (e *enc) flag(v bool) {
	if v {
		e.u32(1)
	} else {
		e.u32(0)
	}
}

func (e *enc) str(s string) {
	e.u32(uint32(len(s)))
	e.b = append(e.b, s...)
}

func (e *enc) strs(l []string) {
	e.u32(uint32(len(l)))
	for _, s := range l {
		e.str(s)
	}
}

func (e *enc) done() []byte {
	n := uint32(len(e.b) - 4)
	e.b[0], e.b[1], e.b[2], e.b[3] = byte(n), byte(n>>8), byte(n>>16), byte(n>>24)
	return e.b
}

type dec struct {
	b   []byte
	bad bool
}

func (d *dec) take(n int) []byte {
	if n > len(d.b) {
		d.bad, d.b = true, nil
		return make([]byte, 8)
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *dec) u32() uint32 { return Length(d.take(4)) }

func (d *dec) u64() uint64 {
	lo := d.u32()
	return uint64(lo) | uint64(d.u32())<<32
}

func (d *dec) flag() bool { return d.u32() != 0 }

// count is a number of elements of at least size bytes, which must be there.
func (d *dec) count(size int) uint32 {
	n := d.u32()
	if uint64(n)*uint64(size) > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return 0
	}
	return n
}

func (d *dec) str() string { return string(d.take(int(d.count(1)))) }

func (d *dec) strs() []string {
	n := d.count(4)
	l := make([]string, 0, n)
	for ; n > 0; n-- {
		l = append(l, d.str())
	}
	return l
}

// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	gogotypes "github.com/gogo/protobuf/types"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/moby/swarmkit/v2/api"

	"satld/events"
	"satld/healthcheck"
	"satld/image"
	"satld/jail"
	"satld/network"
	"satld/traffic"
)

// journal is what the fakes were asked to do, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

// at is the position of the first line equal to one of lines, -1 without.
func (j *journal) at(line string) int { return slices.Index(j.all(), line) }

// fakeRuntime runs nothing: a process lives until it is killed or ended by
// the test.
type fakeRuntime struct {
	jail.Runtime
	j  *journal
	mu sync.Mutex
	on map[string]*fakeProcess

	ignoreTerm bool
	failCreate error
	unmade     int                           // so many creates meet a shim that dies
	untold     error                         // what Running and Wait say of task1's container
	probe      func(id string) (int, string) // exit code and output
	printed    []string                      // lines of every container's log
	logsHang   bool
	names      []string             // runtime IDs that were created
	files      []jail.File          // of the last one created
	left       map[string]time.Time // until when a deleted jail is dying, by its name
	dies       time.Duration        // how long a jail takes to vanish after Delete
}

type fakeProcess struct {
	started time.Time
	done    chan struct{}
	exit    jail.Exit
	running bool
}

func (f *fakeRuntime) process(id string) *fakeProcess {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.on[id]
	if p == nil {
		p = &fakeProcess{done: make(chan struct{})}
		f.on[id] = p
	}
	return p
}

func (f *fakeRuntime) Create(_ context.Context, s jail.Spec) (int, error) {
	f.j.add("create")
	if f.failCreate != nil {
		return 0, f.failCreate
	}
	f.mu.Lock()
	if f.unmade > 0 {
		f.unmade--
		f.names = append(f.names, s.ID)
		f.mu.Unlock()
		return 0, fmt.Errorf("%w: EOF", jail.ErrUnmade)
	}
	f.names, f.files = append(f.names, s.ID), s.Files
	delete(f.on, s.ID)
	f.mu.Unlock()
	f.process(s.ID)
	return 42, nil
}

func (f *fakeRuntime) Start(_ context.Context, id string) (time.Time, error) {
	p := f.process(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.started.IsZero() {
		f.j.add("start")
		p.started, p.running = time.Now(), true
	}
	return p.started, nil
}

func (f *fakeRuntime) end(id string, code int) {
	p := f.process(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.running {
		p.running = false
		p.exit = jail.Exit{Code: code, At: time.Now()}
		close(p.done)
	}
}

func (f *fakeRuntime) Wait(ctx context.Context, id string) (jail.Exit, error) {
	p := f.process(id)
	select {
	case <-p.done:
		f.mu.Lock()
		defer f.mu.Unlock()
		return p.exit, nil
	case <-ctx.Done():
		return jail.Exit{}, ctx.Err()
	}
}

func (f *fakeRuntime) Running(_ context.Context, id string) (int, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.untold != nil && id == taskContainerID("task1") {
		return 0, false, f.untold
	}
	p := f.on[id]
	if p == nil {
		return 0, false, cerrdefs.ErrNotFound.WithMessage("No such container: " + id)
	}
	return 42, p.running, nil
}

func (f *fakeRuntime) Kill(_ context.Context, id string, sig int) error {
	f.j.add("kill %d", sig)
	if sig == int(syscall.SIGTERM) && !f.ignoreTerm {
		f.end(id, 0) // exits 0 on its stop signal
	}
	if sig == int(syscall.SIGKILL) {
		f.end(id, 137)
	}
	return nil
}

func (f *fakeRuntime) Delete(_ context.Context, id string) error {
	f.j.add("delete")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left == nil {
		f.left = map[string]time.Time{}
	}
	if _, known := f.left[id]; !known && f.on[id] != nil {
		f.left[id] = time.Now().Add(f.dies)
	}
	return nil
}

// Lingers makes it a runtime of jails, which take a while to die.
func (f *fakeRuntime) Lingers(_ context.Context, id string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Before(f.left[id]), nil
}

func (f *fakeRuntime) created() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.names)
}

func (f *fakeRuntime) Logs(ctx context.Context, id string, q jail.LogQuery, each func(jail.LogLine) error) error {
	if f.logsHang {
		<-ctx.Done()
		return ctx.Err()
	}
	if _, _, err := f.Running(ctx, id); err != nil {
		return err
	}
	lines := f.printed
	if q.Tail > 0 {
		lines = lines[max(0, len(lines)-q.Tail):]
	}
	for _, l := range lines {
		if err := each(jail.LogLine{Stream: "stdout", Line: []byte(l + "\n")}); err != nil {
			return err
		}
	}
	return nil
}
func (f *fakeRuntime) Forget(context.Context, string) error { return nil }
func (f *fakeRuntime) List(context.Context) ([]string, error) {
	return nil, nil
}
func (f *fakeRuntime) Pause(context.Context, string) error  { f.j.add("pause"); return nil }
func (f *fakeRuntime) Resume(context.Context, string) error { f.j.add("resume"); return nil }

func (f *fakeRuntime) RunProbe(_ context.Context, id string, _ []string, out io.Writer, started func()) (int, error) {
	started()
	code, text := f.probe(id)
	_, err := io.WriteString(out, text)
	return code, err
}

type fakeImages struct {
	image.Images
	j    *journal // nil: not written
	busy func() error
	root string // "" is /root

	labels map[string]string // of every image
}

func (f *fakeImages) Get(ref string) (image.Image, error) {
	if ref == "missing:1" {
		return image.Image{}, cerrdefs.ErrNotFound.WithMessage("No such image: " + ref)
	}
	return image.Image{ID: "sha256:1", Config: v1.ConfigFile{Config: v1.Config{
		Cmd: []string{"/app"}, Env: []string{"PATH=/bin", "A=1"}, WorkingDir: "/srv", User: "web", Labels: f.labels,
		Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/image-probe"}},
	}}}, nil
}
func (*fakeImages) Pull(context.Context, string, image.Auth, image.Progress) (image.Image, error) {
	return image.Image{}, cerrdefs.ErrNotFound.WithMessage("No such image: missing:1")
}
func (f *fakeImages) Mount(context.Context, string, string) (string, error) {
	f.j.add("mount")
	return cmp.Or(f.root, "/root"), nil
}
func (f *fakeImages) Unmount(context.Context, string) error {
	f.j.add("unmount")
	return f.held()
}
func (f *fakeImages) Release(context.Context, string) error {
	f.j.add("release")
	return f.held()
}
func (f *fakeImages) held() error {
	if f.busy == nil {
		return nil
	}
	return f.busy()
}
func (*fakeImages) Sweep(context.Context, map[string]bool) error { return nil }

type fakeNetworks struct {
	network.Networks
	j *journal // nil: not written

	mu       sync.Mutex
	overlays map[string]network.Network // that this node joined
	places   map[string][]network.Place // asked for, by container
}

// Get knows every network but overlays that were not joined.
func (f *fakeNetworks) Get(id string) (network.Network, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, joined := f.overlays[id]
	return n, joined || !strings.HasPrefix(id, "overlay")
}

func (f *fakeNetworks) Lease(_ context.Context, id string, _ []network.Place) ([]network.Attachment, error) {
	f.j.add("lease")
	return f.Attachments(id), nil
}
func (f *fakeNetworks) Attach(_ context.Context, id string, places []network.Place) (string, []network.Attachment, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.places == nil {
		f.places = map[string][]network.Place{}
	}
	f.places[id] = places
	f.j.add("attach %s", id)
	return "/run/netns/x", f.Attachments(id), nil
}
func (*fakeNetworks) List() []network.Network { return nil }
func (*fakeNetworks) Attachments(string) []network.Attachment {
	return []network.Attachment{{NetworkID: "n", Addr: netip.MustParsePrefix("10.0.0.2/24"), Gateway: netip.MustParseAddr("10.0.0.1")}}
}
func (f *fakeNetworks) Detach(_ context.Context, id string) error {
	f.j.add("detach %s", id)
	return nil
}
func (*fakeNetworks) Sweep(context.Context, map[string]bool) error { return nil }
func (f *fakeNetworks) Ensure(_ context.Context, n network.Network) (network.Network, error) {
	if n.VNI != 0 {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.overlays == nil {
			f.overlays = map[string]network.Network{}
		}
		f.overlays[n.ID] = n
	}
	return n, nil
}

type fakeTraffic struct {
	j          *journal
	mu         sync.Mutex
	members    map[string]traffic.Member
	stuckUntil time.Time // Withdraw fails to confirm before

	removeStuck bool // Remove never confirms
	putStuck    bool // nor does Put of who serves
}

func (f *fakeTraffic) Put(ctx context.Context, m traffic.Member) error {
	f.mu.Lock()
	f.members[m.ContainerID] = m
	f.j.add("put serving=%t", m.Serving)
	f.mu.Unlock()
	if f.putStuck && m.Serving {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (f *fakeTraffic) Withdraw(ctx context.Context, id string) error {
	f.mu.Lock()
	m := f.members[id]
	m.Serving, m.Unhealthy = false, false
	f.members[id] = m
	stuck := time.Until(f.stuckUntil)
	f.mu.Unlock()
	if stuck > 0 {
		select {
		case <-time.After(stuck):
		case <-ctx.Done():
			f.j.add("withdraw unconfirmed")
			return ctx.Err()
		}
	}
	f.j.add("withdraw")
	return nil
}

func (f *fakeTraffic) Remove(ctx context.Context, id string) error {
	if f.removeStuck {
		<-ctx.Done()
		return ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.members, id)
	f.j.add("remove")
	return nil
}

func (f *fakeTraffic) member(id string) traffic.Member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members[id]
}

func (f *fakeTraffic) serving(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members[id].Serving
}

// fakeLeader answers as the test says.
type fakeLeader struct {
	mu      sync.Mutex
	may     bool
	err     error
	hangs   bool
	takes   time.Duration // to answer
	asked   []time.Time
	reports map[string][]byte
	addrs   map[string]netip.Addr // by network/container
}

func (f *fakeLeader) MayReplace(ctx context.Context, _ string) (bool, error) {
	f.mu.Lock()
	f.asked = append(f.asked, time.Now())
	may, err, hangs := f.may, f.err, f.hangs
	f.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return false, ctx.Err()
	}
	time.Sleep(f.takes)
	return may, err
}

func (f *fakeLeader) AttachContainer(_ context.Context, networkID, containerID string) (netip.Addr, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return netip.Addr{}, f.err
	}
	if f.addrs == nil {
		f.addrs = map[string]netip.Addr{}
	}
	key := networkID + "/" + containerID
	if !f.addrs[key].IsValid() {
		f.addrs[key] = netip.AddrFrom4([4]byte{10, 89, 16, byte(10 + len(f.addrs))})
	}
	return f.addrs[key], nil
}

func (f *fakeLeader) DetachContainer(_ context.Context, networkID, containerID string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		delete(f.addrs, networkID+"/"+containerID)
	}
	return f.err
}

func (f *fakeLeader) KeepReport(_ context.Context, taskID string, report []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	if f.reports == nil {
		f.reports = map[string][]byte{}
	}
	f.reports[taskID] = report
	return nil
}

func (f *fakeLeader) set(may bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.may, f.err = may, err
}

func (f *fakeLeader) times() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

// bench is a node among fakes, with the real monitor.
type bench struct {
	t       *testing.T
	dir     string
	j       *journal
	rt      *fakeRuntime
	images  *fakeImages
	nets    *fakeNetworks
	traffic *fakeTraffic
	leader  *fakeLeader // nil: none
	jails   bool        // Config.JailFirst
	boot    string      // Config.Boot
	monitor *healthcheck.Monitor
	events  *events.Log
	node    *Node
	stop    context.CancelFunc
	ended   chan error
}

func newBench(t *testing.T, with ...func(*bench)) *bench {
	j := &journal{}
	b := &bench{
		t: t, dir: t.TempDir(), j: j,
		rt:      &fakeRuntime{j: j, on: map[string]*fakeProcess{}, probe: func(string) (int, string) { return 0, "" }},
		images:  &fakeImages{},
		nets:    &fakeNetworks{},
		traffic: &fakeTraffic{j: j, members: map[string]traffic.Member{}},
	}
	for _, change := range with {
		change(b)
	}
	b.open()
	return b
}

// open starts a daemon's worth of executor over what an earlier one left.
func (b *bench) open() {
	b.t.Helper()
	b.events = new(events.Log)
	b.monitor = healthcheck.NewMonitor(healthcheck.Options{})
	ctx, stop := context.WithCancel(context.Background())
	b.stop, b.ended = stop, make(chan error, 1)
	go func() { b.ended <- b.monitor.Run(ctx) }()
	cfg := Config{
		StateDir: b.dir, Hostname: "here", Runtime: b.rt, Images: b.images, Networks: b.nets, JailFirst: b.jails, Boot: b.boot,
		Traffic: b.traffic, Prober: b.monitor, Events: b.events,
	}
	if b.leader != nil {
		cfg.Leader = b.leader
	}
	node, err := Open(b.t.Context(), cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.node = node
}

// record is a container's record as it would be adopted now.
func (b *bench) record(id string) Record {
	b.t.Helper()
	c, ok := b.node.byID(id)
	if !ok {
		b.t.Fatalf("no container %s", id)
	}
	return c.record()
}

// close ends the daemon and leaves the containers.
func (b *bench) close() {
	b.node.Close()
	b.stop()
	<-b.ended
}

// task makes a task of service web with the given probe, nil for none.
func webTask(health *api.HealthConfig) *api.Task {
	return &api.Task{
		ID: "task1", ServiceID: "service1", Slot: 1, NodeID: "node1",
		ServiceAnnotations: api.Annotations{Name: "web"},
		Spec: api.TaskSpec{Runtime: &api.TaskSpec_Container{Container: &api.ContainerSpec{
			Image: "app:1", Healthcheck: health, StopGracePeriod: gogotypes.DurationProto(2 * time.Second),
		}}},
		Endpoint: &api.Endpoint{Ports: []*api.PortConfig{{Protocol: api.ProtocolTCP, TargetPort: 80, PublishedPort: 8080}}},
	}
}

func everySecond(retries int32) *api.HealthConfig {
	return &api.HealthConfig{
		Test: []string{"CMD", "/probe"}, Interval: gogotypes.DurationProto(time.Second),
		Timeout: gogotypes.DurationProto(time.Second), Retries: retries,
	}
}

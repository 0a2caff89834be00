// SPDX-License-Identifier: BSD-2-Clause

//go:build freebsdhost

// Package jailtest gives tests on a FreeBSD host jails with network stacks of
// their own, as containers and as clients: what runs in one is the test binary
// itself, started again by jexec(8). For tests only, with the tag freebsdhost
// and as root.
package jailtest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// doing in the environment says that the binary was started to do something in a
// jail, and what: "serve NETWORK ADDR TEXT", "talk NETWORK ADDR".
const doing = "SATL_JAILTEST_DO"

// Main runs a package's tests, or what one of them has done in a jail.
func Main(m *testing.M) {
	words := strings.Fields(os.Getenv(doing))
	if len(words) == 0 {
		os.Exit(m.Run())
	}
	var err error
	switch words[0] {
	case "serve":
		err = serve(words[1], words[2], words[3])
	case "talk":
		err = talk(words[1], words[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Require skips the test where it cannot run.
func Require(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root, to make jails")
	}
}

// Must ends the test on an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Run runs a tool of the host and returns what it printed.
func Run(argv ...string) (string, error) {
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, bytes.TrimSpace(out))
	}
	return string(out), nil
}

// Jail is one jail with a network stack of its own and the host's root. The
// zero value is the host itself.
type Jail struct{ Name string }

// New makes a jail; it goes when the test ends.
func New(t testing.TB, name string) *Jail {
	t.Helper()
	_, err := Run("jail", "-c", "name="+name, "vnet", "persist", "path=/")
	Must(t, err)
	j := &Jail{name}
	_, err = Run("jexec", name, "sysctl", "net.inet.tcp.msl=2000") // or it takes a minute to die
	Must(t, err)
	t.Cleanup(func() { _ = j.Remove() }) // it may be gone already
	return j
}

// Remove ends the jail and every process in it, at once.
func (j *Jail) Remove() error {
	_, err := Run("jail", "-R", j.Name)
	return err
}

// Dying tells whether the jail is still there, dying.
func (j *Jail) Dying(t testing.TB) bool {
	t.Helper()
	out, err := Run("jls", "-d", "-h", "name", "dying")
	Must(t, err)
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == j.Name {
			return true
		}
	}
	return false
}

// Join connects the jail to the host by a pair, hostAddr on the outer end: a
// client outside of every bridge.
func (j *Jail) Join(t testing.TB, unit string, hostAddr, addr netip.Prefix) {
	t.Helper()
	for _, c := range [][]string{
		{"ifconfig", "epair" + unit, "create"},
		{"ifconfig", "epair" + unit + "a", "inet", hostAddr.String(), "up"},
		{"ifconfig", "epair" + unit + "b", "vnet", j.Name},
		{"jexec", j.Name, "ifconfig", "lo0", "up"},
		{"jexec", j.Name, "ifconfig", "epair" + unit + "b", "inet", addr.String(), "up"},
		{"jexec", j.Name, "route", "add", "default", hostAddr.Addr().String()},
	} {
		_, err := Run(c...)
		Must(t, err)
	}
	t.Cleanup(func() {
		_ = j.Remove()
		for range 100 { // its end comes back first
			if _, err := Run("ifconfig", "epair"+unit+"b"); err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if _, err := Run("ifconfig", "epair"+unit+"a", "destroy"); err != nil {
			t.Error(err)
		}
	})
}

// start runs the test binary in the jail until the test's end.
func (j *Jail) start(t testing.TB, what string) (in io.WriteCloser, out *bufio.Reader) {
	t.Helper()
	self, err := os.Executable()
	Must(t, err)
	argv := []string{self}
	if j != nil {
		argv = []string{"jexec", j.Name, self}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), doing+"="+what)
	cmd.Stderr = os.Stderr
	in, err = cmd.StdinPipe()
	Must(t, err)
	pipe, w, err := os.Pipe()
	Must(t, err)
	cmd.Stdout = w
	Must(t, errors.Join(cmd.Start(), w.Close()))
	ended := make(chan struct{})
	go func() { // at once: a zombie of a jail keeps it dying
		defer close(ended)
		_ = cmd.Wait() // it may be killed with its jail
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
		pipe.Close()
	})
	return in, bufio.NewReader(pipe)
}

// Serve answers on an address in the jail with text, then with what it is sent.
func (j *Jail) Serve(t testing.TB, network, addr, text string) {
	t.Helper()
	_, out := j.start(t, fmt.Sprintf("serve %s %s %s", network, addr, text))
	if line, err := out.ReadString('\n'); line != "ready\n" {
		t.Fatalf("serve %s in jail: %q, %v", addr, line, err)
	}
}

func serve(network, addr, text string) error {
	if network == "udp4" {
		c, err := net.ListenPacket(network, addr)
		if err != nil {
			return err
		}
		fmt.Println("ready")
		buf := make([]byte, 100)
		for {
			_, from, err := c.ReadFrom(buf)
			if err != nil {
				return err
			}
			if _, err := c.WriteTo([]byte(text), from); err != nil {
				return err
			}
		}
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			if _, err := fmt.Fprintln(c, text); err == nil {
				_, _ = io.Copy(c, c) // ends with the client
			}
		}()
	}
}

// Talk is one conversation from a jail: each Say sends a line, or a datagram.
type Talk struct {
	in  io.WriteCloser
	out *bufio.Reader
	mu  sync.Mutex
	// Hello is what the other side said first (TCP only).
	Hello string
}

// Talk connects from the jail (nil: from the host).
func (j *Jail) Talk(t testing.TB, network, addr string) (*Talk, error) {
	t.Helper()
	in, out := j.start(t, fmt.Sprintf("talk %s %s", network, addr))
	k := &Talk{in: in, out: out}
	line, err := k.hear()
	k.Hello = line
	return k, err
}

// Ask connects from the jail (nil: from the host) and tells who answered.
func (j *Jail) Ask(t testing.TB, addr string) (string, error) {
	t.Helper()
	k, err := j.Talk(t, "tcp4", addr)
	if err == nil {
		k.in.Close()
	}
	return k.Hello, err
}

// Say sends a line and returns what comes back, within half a second.
func (k *Talk) Say(text string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, err := fmt.Fprintln(k.in, text); err != nil {
		return "", err
	}
	return k.hear()
}

func (k *Talk) hear() (string, error) {
	line, err := k.out.ReadString('\n')
	line = strings.TrimSuffix(line, "\n")
	if why, failed := strings.CutPrefix(line, "error: "); failed {
		return "", fmt.Errorf("%s", why)
	}
	return line, err
}

func talk(network, addr string) error {
	c, err := net.DialTimeout(network, addr, 3*time.Second)
	if err != nil {
		fmt.Println("error:", err)
		return nil
	}
	defer c.Close()
	answers := bufio.NewReader(c)
	hear := func() {
		_ = c.SetReadDeadline(time.Now().Add(3 * time.Second))
		if network == "udp4" {
			_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
			buf := make([]byte, 100)
			n, err := c.Read(buf)
			if err != nil {
				fmt.Println("error:", err)
				return
			}
			fmt.Println(string(buf[:n]))
			return
		}
		line, err := answers.ReadString('\n')
		if err != nil {
			fmt.Println("error:", err)
			return
		}
		fmt.Print(line)
	}
	if network == "udp4" {
		fmt.Println("connected")
	} else {
		hear()
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if _, err := fmt.Fprintln(c, lines.Text()); err != nil {
			fmt.Println("error:", err)
			continue
		}
		hear()
	}
	return nil
}

// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/docker/cli/cli"
	"github.com/docker/cli/cli/command"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestMain is satl itself where the environment says so: the tests run the
// program, with its environment and its exit status.
func TestMain(m *testing.M) {
	if os.Getenv("SATL_TEST_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// daemon is a small stand-in for satld on a unix socket.
type daemon struct {
	socket string
	answer http.HandlerFunc // of what the tests ask beyond _ping and version

	mu    sync.Mutex
	asked []string
	last  http.Header
}

func startDaemon(t *testing.T, answer http.HandlerFunc) *daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "satl") // a test's own directory is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &daemon{socket: filepath.Join(dir, "s"), answer: answer}
	l, err := net.Listen("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: d}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return d
}

// requests are those made so far, and the headers of the last.
func (d *daemon) requests() ([]string, http.Header) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.asked), d.last
}

var versioned = regexp.MustCompile(`^/v[0-9.]+`)

func (d *daemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := versioned.ReplaceAllString(r.URL.Path, "")
	d.mu.Lock()
	d.asked, d.last = append(d.asked, r.Method+" "+path), r.Header
	d.mu.Unlock()
	w.Header().Set("Api-Version", "1.51")
	w.Header().Set("Ostype", "linux")
	w.Header().Set("Docker-Experimental", "false")
	w.Header().Set("Content-Type", "application/json")
	switch {
	case path == "/_ping":
		fmt.Fprint(w, "OK")
	case path == "/version":
		fmt.Fprint(w, `{"Platform":{"Name":"satld"},"Version":"1.2.3","ApiVersion":"1.51"}`)
	case d.answer != nil:
		d.answer(w, r)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"message":"no such thing: %s"}`, path)
	}
}

// satl runs the program with exactly this environment.
func satl(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append([]string{"SATL_TEST_MAIN=1", "HOME=" + t.TempDir(), "PATH=/nonexistent"}, env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestResolveHost(t *testing.T) {
	for _, c := range []struct {
		flag      []string
		env, want string
		refused   string
	}{
		{nil, "", DefaultHost, ""},
		{nil, "unix:///tmp/a.sock", "unix:///tmp/a.sock", ""},
		{[]string{"unix:///tmp/b.sock"}, "unix:///tmp/a.sock", "unix:///tmp/b.sock", ""},
		{nil, "/tmp/a.sock", "unix:///tmp/a.sock", ""},
		{[]string{"tcp://127.0.0.1:2375"}, "", "tcp://127.0.0.1:2375", ""},
		{[]string{""}, "", "", "empty"},
		{nil, "satl.sock", "", "satl.sock"},
		{[]string{"ssh://root@node"}, "", "", "ssh -nNT -L /tmp/satl.sock:/var/run/satl.sock root@node"},
	} {
		got, err := resolveHost(c.flag, c.env)
		if got != c.want || (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("flag %q, %s=%q: %q, %v", c.flag, EnvHost, c.env, got, err)
		}
	}
}

// TestWhereItConnects: to ours, whatever docker's environment and
// configuration say.
func TestWhereItConnects(t *testing.T) {
	ours, docker := startDaemon(t, nil), startDaemon(t, nil)
	home := t.TempDir()
	write := func(path, text string, mode os.FileMode) {
		t.Helper()
		path = filepath.Join(home, ".docker", path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	ran := filepath.Join(home, "plugin-ran")
	write("config.json", `{"currentContext":"theirs","features":{"hooks":"true"},"plugins":{"evil":{"hooks":"version"}},
		"aliases":{"builder":"evil"},"cliPluginsExtraDirs":["`+home+`/.docker/cli-plugins"]}`, 0o644)
	write("cli-plugins/docker-evil", "#!/bin/sh\n: > "+ran+"\n", 0o755)
	theirs := []string{
		"HOME=" + home, "DOCKER_HOST=unix://" + docker.socket, "DOCKER_CONTEXT=theirs", "DOCKER_TLS_VERIFY=1", "DOCKER_CERT_PATH=/nonexistent",
		"DOCKER_CLI_HOOKS=1", "DOCKER_CONTENT_TRUST=1", "DOCKER_HIDE_LEGACY_COMMANDS=1",
		"DOCKER_CLI_OTEL_EXPORTER_OTLP_ENDPOINT=unix://" + docker.socket, "OTEL_EXPORTER_OTLP_ENDPOINT=unix://" + docker.socket,
	}
	env := append(theirs, EnvHost+"=unix://"+ours.socket)
	for _, c := range []struct {
		env  []string
		args []string
	}{
		{env, []string{"version"}},
		{append(theirs, EnvHost+"="+ours.socket), []string{"version"}},
		{theirs, []string{"-H", "unix://" + ours.socket, "version"}},
		{append(theirs, EnvHost+"=unix:///nonexistent"), []string{"--host", ours.socket, "version"}},
		{env, []string{"system", "info"}},
		{env, []string{"evil"}},
		{env, []string{"--help"}},
	} {
		before, _ := ours.requests()
		_, stderr, code := satl(t, c.env, c.args...)
		if c.args[0] == "evil" {
			if code != 1 || !strings.Contains(stderr, "unknown command: satl evil") {
				t.Errorf("a plugin: %d, %s", code, stderr)
			}
		} else if after, _ := ours.requests(); c.args[len(c.args)-1] == "version" && (code != 0 || stderr != "" || len(after) == len(before)) {
			t.Errorf("%q: %d, %s", c.args, code, stderr)
		}
	}
	if asked, _ := docker.requests(); len(asked) > 0 {
		t.Errorf("docker was asked: %q", asked)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a docker plugin was run")
	}
}

// TestConfigFile: docker's logins are used; no home, no file and a broken file
// are no hindrance.
func TestConfigFile(t *testing.T) {
	d := startDaemon(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path = versioned.ReplaceAllString(r.URL.Path, ""); r.URL.Path {
		case "/images/create":
			fmt.Fprint(w, `{"status":"done"}`)
		default:
			fmt.Fprint(w, `[]`)
		}
	})
	host := EnvHost + "=" + d.socket
	dir := t.TempDir()
	file := filepath.Join(dir, "config.json")
	login := base64.StdEncoding.EncodeToString([]byte("me:secret"))
	if err := os.WriteFile(file, []byte(`{"auths":{"registry.example.com":{"auth":"`+login+`"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][]string{{"pull", "registry.example.com/a:1"}, {"--config", dir, "image", "pull", "registry.example.com/a:1"}} {
		if _, stderr, code := satl(t, []string{host, "DOCKER_CONFIG=" + dir}, c...); code != 0 {
			t.Errorf("%q: %d, %s", c, code, stderr)
		}
		_, header := d.requests()
		auth, err := base64.URLEncoding.DecodeString(header.Get("X-Registry-Auth"))
		if err != nil || !strings.Contains(string(auth), `"username":"me","password":"secret"`) {
			t.Errorf("%q: login %q, %v", c, auth, err)
		}
		if agent := header.Get("User-Agent"); !strings.HasPrefix(agent, "satl/") {
			t.Errorf("user agent %q", agent)
		}
	}

	broken := t.TempDir()
	if err := os.Mkdir(filepath.Join(broken, "config.json"), 0o700); err != nil { // unreadable as a file, also for root
		t.Fatal(err)
	}
	for _, env := range []string{"HOME=", "HOME=/nonexistent", "DOCKER_CONFIG=/nonexistent", "DOCKER_CONFIG=" + broken, "DOCKER_CONFIG=/dev/null"} {
		if stdout, stderr, code := satl(t, []string{host, env}, "ps"); code != 0 || !strings.HasPrefix(stdout, "CONTAINER ID") {
			t.Errorf("%s: %d, %s", env, code, stderr)
		}
	}
}

func TestExitCodesAndWords(t *testing.T) {
	d := startDaemon(t, func(w http.ResponseWriter, r *http.Request) {
		switch versioned.ReplaceAllString(r.URL.Path, "") {
		case "/containers/create":
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"message":"--isolation is not supported"}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"message":"no such thing"}`)
		}
	})
	for _, c := range []struct {
		args        []string
		code        int
		out, stderr string
	}{
		{[]string{"--version"}, 0, "satl version dev, build unknown\n", ""},
		{[]string{"version"}, 0, "Client: satl", ""},
		{[]string{"version", "--format", "{{.Server.Version}}"}, 0, "1.2.3\n", ""},
		{[]string{"version", "--format", "{{"}, 64, "", "template"},
		{[]string{"help", "service"}, 0, "Usage:  satl service COMMAND", ""},
		{[]string{}, 0, "", "Usage:  satl [OPTIONS] COMMAND"},
		{[]string{"nosuch"}, 1, "", "satl: unknown command: satl nosuch\n\nRun 'satl --help'"},
		{[]string{"build", "."}, 1, "", "satl: unknown command: satl build"},
		{[]string{"service", "nosuch"}, 1, "", "satl: unknown command: satl service nosuch"},
		{[]string{"--nosuch"}, 125, "", "unknown flag: --nosuch"},
		{[]string{"--context", "x", "ps"}, 125, "", "unknown flag: --context"},
		{[]string{"ps", "--nosuch"}, 125, "", "Run 'satl ps --help'"},
		{[]string{"inspect"}, 1, "", "'satl inspect' requires at least 1 argument"},
		{[]string{"inspect", "x"}, 1, "[]\n", "no such thing"},
		{[]string{"rm", "x"}, 1, "", "no such thing"},
		{[]string{"run", "x"}, 125, "", "satl: Error response from daemon: --isolation is not supported\n\nRun 'satl run --help'"},
		{[]string{"run", "--health-cmd", "x", "y"}, 125, "", "satl run takes no --health-cmd: only a service"},
		{[]string{"container", "create", "--health-retries", "1", "y"}, 125, "", "satl container create takes no --health-retries"},
		{[]string{"run", "--use-api-socket", "y"}, 125, "", "it would mount docker's socket"},
		{[]string{"run", "--cpu-count", "1", "y"}, 1, "", "--cpu-count is only for a daemon running on windows"},
		{[]string{"-H", "/nonexistent/s", "ps"}, 1, "", "Cannot connect to satld at unix:///nonexistent/s. Is it running?\n"},
		{[]string{"-H", "ssh://node", "ps"}, 1, "", "satl: ssh:// is not supported"},
		{[]string{"-H", "a", "-H", "b", "ps"}, 125, "", "specify only one -H"},
	} {
		stdout, stderr, code := satl(t, []string{EnvHost + "=" + d.socket}, c.args...)
		if code != c.code || !strings.Contains(stdout, c.out) || !strings.Contains(stderr, c.stderr) {
			t.Errorf("satl %s: exit %d, want %d\nstdout: %s\nstderr: %s", strings.Join(c.args, " "), code, c.code, stdout, stderr)
		}
	}
}

// tree is the command tree, without a daemon.
func tree(t *testing.T) *cobra.Command {
	t.Helper()
	docker, err := command.NewDockerCli()
	if err != nil {
		t.Fatal(err)
	}
	root, _ := newRoot(docker)
	return root
}

func TestCommands(t *testing.T) {
	root := tree(t)
	for _, path := range strings.Fields(`run exec ps pull push images login logout version info inspect events
		logs stop start restart kill rm rename top wait create attach pause unpause port load rmi tag history save cp
		container/ls container/run container/exec container/prune container/inspect
		image/ls image/pull image/load image/inspect image/rm image/prune network/ls network/create network/inspect network/rm
		service/create service/update service/ls service/ps service/inspect service/logs service/scale service/rollback service/rm
		stack/deploy stack/ls stack/ps stack/services stack/rm stack/config
		node/ls node/ps node/inspect node/update node/promote node/demote node/rm
		swarm/init swarm/join swarm/join-token swarm/leave system/df system/info system/events system/prune
		secret/ls config/ls volume/ls`) {
		words := strings.Split(path, "/")
		c, rest, err := root.Find(words)
		if err != nil || len(rest) > 0 || c == root {
			t.Errorf("there is no satl %s", strings.Join(words, " "))
		}
	}
	for _, path := range absent {
		words := strings.Fields(path)
		if c, _, err := root.Find(words); err == nil && c.Name() == words[len(words)-1] {
			t.Errorf("satl %s is still there", path)
		}
	}
	create, _, _ := root.Find([]string{"service", "create"})
	if create.Flags().Lookup("health-cmd").Hidden {
		t.Error("service create hides --health-cmd")
	}
}

// TestHelpSpeaksOfSatl: no command line, and no daemon, of docker's.
func TestHelpSpeaksOfSatl(t *testing.T) {
	allowed := []string{"https://docs.docker.com", "Docker Hub", "Dockerfile", ".docker", "docker.io"}
	says := func(what, text string) {
		for _, a := range allowed {
			text = strings.ReplaceAll(text, a, "")
		}
		if strings.Contains(strings.ToLower(text), "docker") {
			t.Errorf("%s says %q", what, text)
		}
	}
	count := 0
	visit(tree(t), func(c *cobra.Command) {
		count++
		for _, text := range []string{c.Use, c.Short, c.Long, c.Example, c.Annotations["aliases"], c.Annotations["additionalHelp"]} {
			says(c.CommandPath(), text)
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				says(c.CommandPath()+" --"+f.Name, f.Usage)
			}
		})
	})
	if count < 120 {
		t.Errorf("only %d commands", count)
	}
}

func TestInOurWords(t *testing.T) {
	for in, want := range map[string]string{
		"docker: no such image\n\nRun 'docker run --help' for more information":                       "satl: no such image\n\nRun 'satl run --help' for more information",
		`this node is not a swarm manager. Use "docker swarm init" or "docker swarm join" to connect`: `this node is not a swarm manager. Use "satl swarm init" or "satl swarm join" to connect`,
		"Cannot connect to the Docker daemon at unix:///s. Is the docker daemon running?":             "Cannot connect to satld at unix:///s. Is it running?",
		"permission denied while trying to connect to the Docker daemon socket at unix:///s":          "permission denied while trying to connect to satld's socket at unix:///s",
		"pull docker.io/library/docker: not found":                                                    "pull docker.io/library/docker: not found",
	} {
		if got := inOurWords(in); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestExitCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("x"), 1},
		{cli.StatusError{StatusCode: 126}, 126},
		{fmt.Errorf("wrapped: %w", cli.StatusError{StatusCode: 3}), 3},
		{signalled{2}, 130},
		{fmt.Errorf("wait: %w", signalled{15}), 143},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
		if text := said(c.err); c.want > 128 && text != "" {
			t.Errorf("%v: the user is told %q of a signal of its own", c.err, text)
		}
	}
}

// TestInfo shows a recorded engine's answer.
func TestInfo(t *testing.T) {
	const answer = `{"ID":"n1","Containers":3,"ContainersRunning":2,"ServerVersion":"1.2.3","Driver":"overlay","DriverStatus":[["Backing Filesystem","ext4"]],
		"MemTotal":1073741824,"NCPU":2,"Labels":["a=b"],"Warnings":["WARNING: no swap"],
		"Swarm":{"NodeID":"node1","NodeAddr":"10.0.0.1","LocalNodeState":"active","ControlAvailable":true,"Nodes":1,"Managers":1,
		"Cluster":{"ID":"c1"},"RemoteManagers":[{"NodeID":"node1","Addr":"10.0.0.1:2377"}]}}`
	d := startDaemon(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, answer) })
	env := []string{EnvHost + "=" + d.socket}
	for _, args := range [][]string{{"info"}, {"system", "info"}} {
		stdout, stderr, code := satl(t, env, args...)
		for _, want := range []string{
			"Client: satl\n", " Containers: 3\n  Running: 2\n", " Server Version: 1.2.3\n", " Storage Driver: overlay\n  Backing Filesystem: ext4\n",
			" Swarm: active\n  NodeID: node1\n  Is Manager: true\n  ClusterID: c1\n", "  Manager Addresses:\n   10.0.0.1:2377\n", " Total Memory: 1GiB\n", " Labels:\n  a=b\n",
		} {
			if code != 0 || !strings.Contains(stdout, want) {
				t.Errorf("%q: exit %d, no %q in\n%s", args, code, want, stdout)
			}
		}
		if stderr != "WARNING: no swap\n" {
			t.Errorf("stderr %q", stderr)
		}
	}
	for format, want := range map[string]string{
		"{{.Swarm.LocalNodeState}} {{.ClientInfo.Platform}}": "active satl\n",
		"json": `"ServerVersion":"1.2.3"`,
	} {
		if stdout, _, code := satl(t, env, "info", "--format", format); code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("%s: %d, %s", format, code, stdout)
		}
	}
	if _, stderr, code := satl(t, env, "info", "--format", "{{"); code != 64 || !strings.Contains(stderr, "template parsing error") {
		t.Errorf("%d, %s", code, stderr)
	}
	if _, stderr, code := satl(t, []string{EnvHost + "=/nonexistent"}, "info"); code != 1 || !strings.Contains(stderr, "Cannot connect to satld") {
		t.Errorf("%d, %s", code, stderr)
	}
}

// TestForget: what is dropped is docker's, and never a registry login.
func TestForget(t *testing.T) {
	var dropped []string
	forget(func(name string) error { dropped = append(dropped, name); return nil })
	for _, name := range []string{"DOCKER_HOST", "DOCKER_CONTEXT"} {
		if !slices.Contains(dropped, name) {
			t.Errorf("%s is kept", name)
		}
	}
	for _, name := range []string{"DOCKER_CONFIG", "DOCKER_AUTH_CONFIG", EnvHost} {
		if slices.Contains(dropped, name) {
			t.Errorf("%s is dropped", name)
		}
	}
}

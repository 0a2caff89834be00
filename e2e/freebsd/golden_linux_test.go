// SPDX-License-Identifier: BSD-2-Clause

package freebsd

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestCommandLines is the life of a service with one task in the command lines
// that change something on the host, and in the rules that pf holds meanwhile.
func TestCommandLines(t *testing.T) {
	t.Parallel()
	r := newHost(t)
	r.Sysctl("kern.racct.enable", "1")
	r.up()
	r.web("--limit-cpu", "0.5", "--limit-memory", "64m", "--mount", "type=tmpfs,destination=/scratch,tmpfs-size=1m", "--container-label", "satl.jail.allow.mlock=true")
	task := r.awaitRunning("web", 1)[0]
	r.awaitPool(webTable, []string{r.addrOf(task)})
	names := r.names()
	names[r.jailOf(task)] = "CONTAINER"
	rules := r.dump()
	config, err := os.ReadFile(r.jail(task, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	r.docker("service", "rm", "web")
	r.until("the end of the jail", func() bool { live, dying := r.Jails(); return len(live)+len(dying) == 0 })
	r.until("the end of the pool", func() bool { _, ok := r.Table(r.rdr(), webTable); return !ok })
	r.until("the end of its links, mounts and limits", func() bool {
		return !slices.ContainsFunc(r.Leftovers(), func(l string) bool { return !strings.HasPrefix(l, "anchor ") && !bridge(l) })
	})
	r.until("the end of the last command", func() bool {
		return !slices.ContainsFunc(changes(r.Calls()), func(line string) bool { return strings.HasSuffix(line, "# exit -1") })
	})
	r.golden("pf.txt", rules, names)
	r.golden("config.json", pretty(t, config), names)
	// What is done to the filter and what to the rest do not wait for each other.
	var filter, rest []call
	for _, c := range r.Calls() {
		if c.Tool == "pfctl" {
			filter = append(filter, c)
		} else {
			rest = append(rest, c)
		}
	}
	r.golden("commands.txt", strings.Join(slices.Concat(changes(rest), []string{""}, changes(filter)), "\n")+"\n", names)
}

// bridge tells whether something left over is the bridge of a network, which
// stays as long as the network: satl0, or that of an overlay.
func bridge(left string) bool {
	return left == "interface satl0" || strings.HasPrefix(left, "interface sb")
}

// jail is a file of a task's bundle.
func (r *ring) jail(task taskOf, name string) string {
	return filepath.Join(r.state, "jail", "containers", r.jailOf(task), name)
}

// changes are the commands that change something, in order: without those that
// look, and without a pf anchor that is asserted again, whoever is in it then.
func changes(calls []call) (lines []string) {
	loaded := make(map[string]string)
	for _, c := range calls {
		line := c.String()
		verb := func(words ...string) bool {
			return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(c.Args, w) })
		}
		switch c.Tool {
		case "jls", "ps", "netstat", "kldstat":
			continue
		case "sysctl":
			if !strings.Contains(line, "=") {
				continue
			}
		case "mount":
			if verb("-p") {
				continue
			}
		case "rctl":
			if !verb("-a", "-r") {
				continue
			}
		case "ifconfig":
			looks := len(c.Args) == 3 && c.Args[0] == "-j" // at an interface of a jail's
			if len(c.Args) < 2 || c.Args[0] == "-g" || looks {
				continue
			}
		case "route":
			if verb("get") {
				continue
			}
		case "ocijail":
			if verb("exec", "state", "list") { // probes, as many as there is time for
				continue
			}
		case "pfctl":
			if verb("show") || slices.ContainsFunc(c.Args, func(a string) bool { return a == "-s" || strings.HasPrefix(a, "-s") }) {
				continue
			}
			if c.Stdin != "" || verb("-f") {
				text := members.ReplaceAllString(c.Stdin, "$1")
				if loaded[line] == text {
					continue
				}
				loaded[line] = text
				line += " <<END\n" + c.Stdin + "END"
			}
		}
		if c.Exit != 0 {
			line += fmt.Sprintf("   # exit %d", c.Exit)
		}
		lines = append(lines, line)
	}
	return lines
}

// names are what differs from run to run, and what golden files call it.
func (r *ring) names() map[string]string {
	return map[string]string{r.dir: "DIR", r.Bin: "BIN"}
}

var (
	members = regexp.MustCompile(`(table <satl_[pc][^>]*> persist) \{[^}]*\}`)
	markOf  = regexp.MustCompile(`satl[0-9a-f]{8}g`)
	links   = regexp.MustCompile(`\b(sv|se)[0-9a-f]{12,13}\b`)
	bridges = regexp.MustCompile(`sb[0-9a-f]{10}\b`)
	units   = regexp.MustCompile(`\b(bridge|epair)(\d+)([ab]?)\b`)
	macs    = regexp.MustCompile(`02:42(:[0-9a-f]{2}){4}`)
	longID  = regexp.MustCompile(`\b[0-9a-z]{25}\b`)
	bigTime = regexp.MustCompile(`\b1[0-9]{12,18}\b`)
)

// golden compares a text with a file of testdata, after names.
func (r *ring) golden(file, got string, names map[string]string) {
	r.t.Helper()
	if m := markOf.FindString(got); m != "" {
		got = strings.ReplaceAll(got, strings.TrimSuffix(strings.TrimPrefix(m, "satl"), "g"), "MARK")
	}
	if i := strings.Index(got, "# satl/nat_"); i >= 0 {
		mark, _, _ := strings.Cut(got[i+len("# satl/nat_"):], "\n")
		got = strings.ReplaceAll(got, mark, "MARK")
	}
	for name, as := range names {
		got = strings.ReplaceAll(got, name, as)
		if len(name) == 64 { // a container, and its short form as a hostname
			got = strings.ReplaceAll(got, name[:12], as+"12")
		}
	}
	numbers := make(map[string]string)
	number := func(kind string) func(string) string {
		return func(s string) string {
			if numbers[s] == "" {
				numbers[s] = fmt.Sprintf("%s%d", kind, len(numbers)+1)
			}
			return numbers[s]
		}
	}
	got = bridges.ReplaceAllString(got, "sbBRIDGE")
	got = links.ReplaceAllStringFunc(got, func(s string) string { return s[:2] + "LINK" })
	got = units.ReplaceAllString(got, "${1}N${3}")
	got = macs.ReplaceAllString(got, "02:42:MAC")
	got = longID.ReplaceAllStringFunc(got, number("ID"))
	got = bigTime.ReplaceAllString(got, "TIME")
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			r.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	if got != string(want) {
		r.t.Errorf("%s differs (go test -update writes it anew):\n%s", path, got)
	}
}

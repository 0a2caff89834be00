// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/cli/cli/compose/loader"
	composetypes "github.com/docker/cli/cli/compose/types"
	"github.com/docker/docker/api/types/container"
)

var update = flag.Bool("update", false, "write the generated tables of docs/health.md")

const page = "../docs/health.md"

// TestDocs holds the tables of the operator's page to the code.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	got := string(text)
	for name, table := range map[string]string{
		"defaults": defaultsTable(), "limits": limitsTable(), "bounds": boundsTable(t),
		"automatic": automaticTable(t), "labels": labelsTable(t), "profiles": profilesTable(t),
	} {
		block := regexp.MustCompile(`(?s)(<!-- generated: ` + name + ` -->\n).*?(<!-- end -->)`)
		if !block.MatchString(got) {
			t.Errorf("%s has no table %s", page, name)
		}
		got = block.ReplaceAllStringFunc(got, func(old string) string {
			m := block.FindStringSubmatch(old)
			return m[1] + table + m[2]
		})
	}
	for i, r := range got {
		if r > 0x7f {
			t.Errorf("%s is not ASCII at %.30q", page, got[i:])
			break
		}
	}
	if got == string(text) {
		return
	}
	if !*update {
		t.Fatalf("%s does not say what the code does; run this test with -update", page)
	}
	if err := os.WriteFile(page, []byte(got), 0o644); err != nil {
		t.Fatal(err)
	}
}

// table renders rows in Markdown, the first one as the heading.
func table(rows [][]string) string {
	var b strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(&b, "|%s\n", strings.Repeat("---|", len(row)))
		}
	}
	return b.String()
}

// human is a duration as the specification writes it: "30 s".
func human(d time.Duration) string {
	if d%sec != 0 {
		return fmt.Sprintf("%d ms", d/time.Millisecond)
	}
	return fmt.Sprintf("%d s", d/sec)
}

func defaultsTable() string {
	return table([][]string{
		{"Field", "Default", "Published service", "Meaning"},
		{"Interval", human(DefaultInterval), human(PublishedInterval), "between the end of a probe and the next"},
		{"Timeout", human(DefaultTimeout), fmt.Sprintf("%s, or min(%s, interval) if you set the interval", human(PublishedTimeout), human(DefaultTimeout)), "a probe that outlives this is a failure"},
		{"Retries", fmt.Sprint(DefaultRetries), fmt.Sprint(PublishedRetries), "failures in a row that make it unhealthy"},
		{"StartPeriod", human(DefaultStartPeriod), "unchanged", "from the start of the main process: failures are not counted until the first pass"},
		{"StartInterval", fmt.Sprintf("min(interval, %s)", human(MaxStartInterval)), "unchanged", "the wait while never yet healthy"},
	})
}

func limitsTable() string {
	return table([][]string{
		{"Limit", "Value", "Meaning"},
		{"shortest duration", human(MinDuration), "0 is the default; anything else below this is refused"},
		{"results kept", fmt.Sprint(MaxLog), "State.Health.Log"},
		{"output kept", fmt.Sprintf("%d bytes", MaxOutput), "of each result"},
		{"output in a task's error", fmt.Sprintf("%d bytes", ReasonOutput), "service ps --no-trunc"},
		{"probes at a time", fmt.Sprint(DefaultSlots), "commands, on one node; waiting for a turn is not failing"},
		{"other probes at a time", fmt.Sprint(DefaultLightSlots), "HTTP, TCP and file, on one node"},
		{"set-up", human(SetupLimit), "until the probe's process runs; not part of its timeout"},
		{"kill", human(KillLimit), "until a killed probe must be gone; then it counts as a failure and its turn goes to others"},
	})
}

// boundsTable is the specification's table under "Trading detection latency
// for stability", made by the code; TestBounds holds it to the page's numbers.
func boundsTable(t *testing.T) string {
	rows := [][]string{{"interval", "retries", "sustained failure needed", "worst case out of the pool"}}
	for _, b := range specBounds {
		s := b.settings(t)
		rows = append(rows, []string{
			human(s.Interval) + b.note, fmt.Sprint(s.Retries), human(Sustained(s)),
			fmt.Sprintf("%d x (%d + %d) + %d + %d = %s", s.Retries+1, s.Interval/sec, s.Timeout/sec, grace/sec, PoolRepair/sec, human(WorstCase(s, grace))),
		})
	}
	return table(rows)
}

// automaticTable is the table of spec/replica-health.txt, "Check interval".
func automaticTable(t *testing.T) string {
	rows := [][]string{{"Timeout", "Interval", "Traffic stops after", "Replaced after"}}
	for _, timeout := range []int{10, 15, 30, 60} {
		s := resolved(t, timeoutOf(time.Duration(timeout)*sec), "http=/health profile=manual")
		name := human(s.Timeout)
		if timeout == 10 {
			name = "1-10 s"
		}
		rows = append(rows, []string{name, human(s.Interval),
			fmt.Sprintf("%d checks, %s", s.Retries, human(Sustained(s))),
			fmt.Sprintf("%d checks, %s", s.replaceAfter(), human(SustainedReplace(s)))})
	}
	return table(rows)
}

// labelsTable are all labels, each with a value that is good.
func labelsTable(t *testing.T) string {
	rows := [][]string{{"Label", "For example", "Meaning"}}
	for _, row := range [][3]string{
		{labelHTTP, "/health", "GET to the task's own address"},
		{labelPort, "8080", "its port; unset: the target of the service's first published port. Also `satl.health.port`"},
		{labelPass, "200-299,404", fmt.Sprintf("the status codes that pass; unset: %v, with profile gate %v. Also `satl.health.pass`", defaultPass, gatePass)},
		{labelHeader + "NAME", "value", "a header to send. Also `satl.health.header.NAME`"},
		{labelTCP, "5432", "a connection to the port opens"},
		{labelFile, "/run/health", "a status file of the task"},
		{labelFirst, "30s", "from the start to the first probe; unset: one wait. 0s only in automatic and manual"},
		{labelUnroute, "5", "failures in a row, or the time that they cover, until it is out of traffic; unset: retries"},
		{labelReplace, "5m", "the same until it is replaced; unset: the same moment"},
		{labelStartLimit, "10m", "longest start, from the first probe; failures before the first pass are then not counted"},
		{labelProfile, "automatic", strings.Join(profiles, ", ")},
		{labelAction, "unroute", strings.Join(actions, ", ")},
	} {
		labels := map[string]string{row[0]: row[1], labelHTTP: "/health"}
		switch row[0] {
		case labelTCP, labelFile:
			delete(labels, labelHTTP)
		}
		if _, ok, warnings, err := FromSpec(nil, labels); !ok || err != nil || len(warnings) > 0 {
			t.Errorf("%v: %v %q %v", labels, ok, warnings, err)
		}
		rows = append(rows, []string{"`" + row[0] + "`", "`" + row[1] + "`", row[2]})
	}
	return table(rows)
}

// profilesTable is what each profile makes of an HTTP probe.
func profilesTable(t *testing.T) string {
	rows := [][]string{{"Profile", "First probe", "Every", "Timeout", "Start given up", "Out of traffic after", "Replaced after", "Worst case out of the pool"}}
	for _, p := range []Profile{Docker, Automatic, Gate} {
		s := resolved(t, nil, "http=/health profile="+p.String())
		first, start := NextDelay(Health{}, s), "after retries failures past StartPeriod"
		pace := human(s.Interval)
		switch {
		case p == Gate:
			start, pace = human(GateBound), fmt.Sprintf("%s, then %s", human(GateInterval), pace)
		case s.StartLimit > 0:
			start = human(s.StartLimit) + " after the first probe"
		}
		rows = append(rows, []string{p.String(), human(first), pace, human(s.Timeout), start,
			fmt.Sprintf("%d failures, %s", s.Retries, human(Sustained(s))),
			fmt.Sprintf("%d failures, %s", s.replaceAfter(), human(SustainedReplace(s))), human(WorstCase(s, grace))})
	}
	return table(rows)
}

// TestDocsExamples: the examples of the page are specs that can be deployed,
// and ask for what the page says they do.
func TestDocsExamples(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for block := range strings.SplitSeq(string(text), "\n\n") {
		if strings.HasPrefix(block, "    ") {
			blocks = append(blocks, strings.ReplaceAll("\n"+block, "\n    ", "\n"))
		}
	}
	var got []string
	for _, block := range blocks {
		switch {
		case strings.HasPrefix(block, "\nservices:"):
			got = append(got, composeExample(t, block)...)
		case strings.HasPrefix(block, "\ndocker service create"):
			got = append(got, commandExample(t, block))
		}
	}
	want := []string{
		"exec docker 10s 2s", "web: http automatic 10s 5s", "http manual 15s 15s", "web: http gate 10s 2s",
		"web: exec docker 10s 3s", "worker: none", "batch: none", "worker: file docker 10s 30s",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the examples ask for\n%q, want\n%q", got, want)
	}
}

// asks says what a spec asks for.
func asks(t *testing.T, hc *container.HealthConfig, labels map[string]string) string {
	t.Helper()
	s, ok, warnings, err := FromSpec(hc, labels)
	if err != nil || len(warnings) > 0 {
		t.Errorf("%v: %v, warnings %q", labels, err, warnings)
	}
	if !ok {
		return "none"
	}
	return fmt.Sprintf("%v %v %v %v", s.Kind, s.Profile, s.Interval, s.Timeout)
}

// composeExample is what the services of a compose file ask for, by name.
func composeExample(t *testing.T, text string) (all []string) {
	t.Helper()
	parsed, err := loader.ParseYAML([]byte("version: '3.13'\n" + text))
	if err != nil {
		t.Fatalf("%v in%s", err, text)
	}
	config, err := loader.Load(composetypes.ConfigDetails{ConfigFiles: []composetypes.ConfigFile{{Config: parsed}}})
	if err != nil {
		t.Fatalf("%v in%s", err, text)
	}
	slices.SortFunc(config.Services, func(a, b composetypes.ServiceConfig) int { return strings.Compare(a.Name, b.Name) })
	for _, service := range config.Services {
		hc := &container.HealthConfig{}
		if h := service.HealthCheck; h != nil {
			hc.Test = h.Test
			for to, from := range map[*time.Duration]*composetypes.Duration{&hc.Interval: h.Interval, &hc.Timeout: h.Timeout, &hc.StartPeriod: h.StartPeriod} {
				if from != nil {
					*to = time.Duration(*from)
				}
			}
			if h.Retries != nil {
				hc.Retries = int(*h.Retries)
			}
		}
		all = append(all, service.Name+": "+asks(t, hc, service.Labels))
	}
	return all
}

// commandExample is what a docker command line asks for.
func commandExample(t *testing.T, text string) string {
	t.Helper()
	hc, labels := &container.HealthConfig{}, make(map[string]string)
	for _, m := range regexp.MustCompile(`--([a-z-]+) ('[^']*'|\S+)`).FindAllStringSubmatch(text, -1) {
		value := strings.Trim(m[2], "'")
		d, _ := time.ParseDuration(value) // of the flags that are one
		switch m[1] {
		case "health-cmd":
			hc.Test = []string{"CMD-SHELL", value}
		case "health-interval":
			hc.Interval = d
		case "health-timeout":
			hc.Timeout = d
		case "health-start-period":
			hc.StartPeriod = d
		case "container-label":
			name, value, _ := strings.Cut(value, "=")
			labels[name] = value
		}
	}
	return asks(t, hc, labels)
}

const grace = 10 * sec // stop_grace_period's default

// specBound is a row of the specification's table.
type specBound struct {
	hc               container.HealthConfig
	note             string
	sustained, worst time.Duration
}

var specBounds = []specBound{
	{container.HealthConfig{}, " (both unset)", 10 * sec, 39 * sec},
	{container.HealthConfig{Retries: 4}, " (unset)", 20 * sec, 55 * sec},
	{container.HealthConfig{Interval: 10 * sec, Retries: 3}, " (explicit)", 30 * sec, 95 * sec},
	{container.HealthConfig{Interval: 30 * sec, Timeout: 30 * sec, Retries: 3}, " (Docker's, explicit)", 90 * sec, 255 * sec},
}

// settings are those of a published service with that healthcheck.
func (b specBound) settings(t *testing.T) Settings {
	t.Helper()
	hc := b.hc
	hc.Test = []string{"CMD", "true"}
	tightened(&hc)
	s, ok, _, err := FromSpec(&hc, nil)
	if !ok || err != nil {
		t.Fatalf("%v %v", ok, err)
	}
	return s
}

func TestBounds(t *testing.T) {
	for _, b := range specBounds {
		s := b.settings(t)
		if Sustained(s) != b.sustained || WorstCase(s, grace) != b.worst {
			t.Errorf("%+v: sustained %v, worst case %v; want %v, %v", b.hc, Sustained(s), WorstCase(s, grace), b.sustained, b.worst)
		}
	}
}

// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

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
		{"probes at a time", fmt.Sprint(DefaultSlots), "on one node; waiting for a turn is not failing"},
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
	TightenPublished(&hc)
	s, ok, _, err := FromConfig(&hc)
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

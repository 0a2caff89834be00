// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/docker/cli/cli"
	"github.com/docker/cli/cli/command/formatter"
	"github.com/docker/cli/templates"
	"github.com/spf13/cobra"
)

// formatFlag gives a command the flag --format.
func formatFlag(cmd *cobra.Command) *string {
	return cmd.Flags().StringP("format", "f", "", "Format output: 'json', or a Go template over the fields of the answer (docs/api.md)")
}

// formatted prints an answer of satld's own API as JSON or by a template.
func formatted(out io.Writer, format string, v any) error {
	if format == formatter.JSONFormatKey {
		data, err := json.MarshalIndent(v, "", "    ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s\n", data)
		return err
	}
	tmpl, err := templates.Parse(format)
	if err != nil {
		return cli.StatusError{StatusCode: 64, Status: "template parsing error: " + err.Error()}
	}
	var text strings.Builder
	if err := tmpl.Execute(&text, v); err != nil {
		return fmt.Errorf("template: %w", err)
	}
	_, err = fmt.Fprintln(out, text.String())
	return err
}

// printable is text from a task as one line that does nothing to a terminal.
func printable(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r < ' ' || r >= 0x7f && r < 0xa0:
			return -1
		}
		return r
	}, text))
}

// short is the head of an ID, as docker's tables have it.
func short(id string) string { return id[:min(len(id), 12)] }

// brief is a duration to a precision that a glance can use.
func brief(d time.Duration) string {
	switch {
	case d < 0:
		return "now"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	text := d.Round(time.Second).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-len("0s")]
		}
	}
	return text
}

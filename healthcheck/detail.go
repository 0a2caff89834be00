// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"fmt"
	"strconv"
	"strings"
)

// Detail sums a failed deploy's evidence up for its record. It opens with the
// likely cause and its remedy where the evidence shows one. It is ASCII, and
// holds no address, credential or host: nothing of what the task answered or
// printed is in it, nor the path that was asked for.
//
// Rule: spec/deploy-check.txt, "The evidence a failed check keeps".
func Detail(e Evidence) string {
	parts := []string{e.cause()}
	if e.redirected() {
		parts = append(parts, fmt.Sprintf("The last response was a redirect (%d), and the check does not follow it.", e.Last.Status))
	}
	if len(e.ProbeSequence) > 0 {
		runs := make([]string, len(e.ProbeSequence))
		for i, run := range e.ProbeSequence {
			runs[i] = fmt.Sprintf("%s x %d", run.Result, run.Count)
		}
		parts = append(parts, "The probes met, in this order: "+strings.Join(runs, ", ")+".")
	}
	if e.EndedEarly {
		parts = append(parts, "The check ended early: the task itself gave the same client error each time.")
	}
	return strings.Join(parts, " ")
}

// redirected tells whether the last response was a redirect.
func (e Evidence) redirected() bool {
	return e.Last != nil && e.Last.Status >= 300 && e.Last.Status <= 399
}

// cause is the likely cause and its remedy.
func (e Evidence) cause() string {
	switch c := e.Compute; {
	case c != nil && c.OOMKilled:
		return "The task was killed because it ran out of memory: raise its limit, or have it use less."
	case c != nil && c.State == "exited" && c.ExitCode != nil:
		return fmt.Sprintf("The process ended with exit code %d before a probe passed: its console says why.", *c.ExitCode)
	case c != nil && c.State == "exited":
		return "The process ended before a probe passed: its console says why."
	case len(e.ProbeSequence) == 0:
		return "The task ended before its first probe."
	}
	last := e.ProbeSequence[len(e.ProbeSequence)-1].Result
	if code, err := strconv.Atoi(last); err == nil {
		return statusCause(code)
	}
	if code, ok := strings.CutPrefix(last, "exit "); ok {
		return exitCause(code)
	}
	if cause, ok := wordCauses[last]; ok {
		return cause
	}
	return "The last probe did not pass."
}

// wordCauses are the causes of what is neither a status nor an exit code.
var wordCauses = map[string]string{
	"refused":     "Nothing listens at the probed port: have the application listen on it, on every address and not on its loopback alone, or probe the port it listens on.",
	"timed_out":   "No response began in time: the application is not listening yet, or too busy to answer. Answer the health path at once and without waiting for other services, or allow more time.",
	"reset":       "The application broke the connection off before it answered: the probed port may speak another protocol, such as TLS.",
	"closed":      "The application closed the connection before it answered: the probed port may speak another protocol, such as TLS.",
	"malformed":   "What answered makes no sense: the probed port may speak another protocol than HTTP, or the status file is not two lines, a word and a time.",
	"unreachable": "The task's address could not be reached: its network was not there any more, or a filter in the task keeps the node out.",
	"failed":      "The probe could not be made: the task has no address or root to be probed at, or the node is out of resources.",
	"connected":   "The last probe passed: the task did not fail for its health.",

	wordHealthy:   "The last probe passed: the task did not fail for its health.",
	wordUnhealthy: "The task says itself in its status file that it is unhealthy.",
	wordStale:     "The status file is not kept up to date: write it at least twice a minute, with the time of writing in seconds.",
	wordMissing:   "There is no status file: have the application write it at the path that the label names, as the task sees it.",
	wordRefused:   "What is at the status file's path is not a regular file: have the application write one.",
}

// statusCause is what an HTTP status says of the application.
func statusCause(code int) string {
	switch {
	case code == 200:
		return "The last probe passed: the task did not fail for its health."
	case code == 404:
		return "No route at the health path: the application answers it with 404. Add the route, or have the check ask for one that is there."
	case code == 401, code == 403, code == 407:
		return fmt.Sprintf("The health path asks for credentials (%d): leave it open to the check, or have the check send them in a header.", code)
	case code == 400, code == 421:
		return fmt.Sprintf("The application does not accept the request (%d), often because it knows only certain host names: accept any at the health path, or set the Host header of the check.", code)
	case code == 405:
		return "The health path does not accept GET (405): have it do so."
	case code == 408, code == 425, code == 429:
		return fmt.Sprintf("The application puts the check off (%d): exempt the health path from its limits.", code)
	case code == 503:
		return "The application said until the end that it is not ready (503): find out what it waits for, or allow more time."
	case code >= 500:
		return fmt.Sprintf("The application fails at the health path (%d): its console may say why.", code)
	case code >= 400:
		return fmt.Sprintf("The application refuses the check with a client error (%d): have the health path answer 200.", code)
	case code >= 300:
		return "The health path redirects: have it answer 200 itself."
	}
	return fmt.Sprintf("The health path answers with %d: have it answer 200.", code)
}

// exitCause is what a probe command's exit code says.
func exitCause(code string) string {
	switch code {
	case "0":
		return "The last probe passed: the task did not fail for its health."
	case "-1":
		return "The probe command could not be run, or outlived its timeout: the record's last output says which."
	case "126":
		return "The probe command cannot be executed (exit code 126): check its mode and format in the image."
	case "127":
		return "The probe command was not found (exit code 127): the image does not have it, or not in its PATH."
	case "137":
		return "The probe command was killed (exit code 137), perhaps for want of memory."
	}
	return fmt.Sprintf("The probe command fails with exit code %s: the record's last output says why.", code)
}

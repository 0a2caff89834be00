// SPDX-License-Identifier: BSD-2-Clause

// Package healthcheck decides health: settings, from a healthcheck and container
// labels, and their defaults; the probes (commands, HTTP, TCP, status files);
// what a probe's result means (Fold), when the next one is due (NextDelay), and
// the Monitor that owns every probe of the node; what a failed deploy's probes
// leave as evidence; and what settings promise (WorstCase and its kin). The
// rules are those of the healthchecks, replica-health and deploy-check
// specifications; docs/health.md is their page for operators.
//
// It does not act on a verdict: executor does. Nothing of it is stored:
// health is this node's, and starts afresh with the daemon.
package healthcheck

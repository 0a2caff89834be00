// SPDX-License-Identifier: BSD-2-Clause

// Package healthcheck decides health: settings and their defaults, what a
// probe's result means (Fold), when the next one is due (NextDelay), and the
// Monitor that owns every probe of the node. The rules are those of the
// healthchecks specification; docs/health.md is their page for operators.
//
// It does not act on a verdict: executor does. Nothing of it is stored:
// health is this node's, and starts afresh with the daemon.
package healthcheck

// SPDX-License-Identifier: BSD-2-Clause

// Package apps decides whether an application is healthy: a stack or compose
// project, judged as a whole by its containers on this node, for a load
// balancer in front of it. The rules are those of spec/application-health.txt;
// docs/health.md is their page for operators.
//
// Judge is pure; Cache applies it every Every and answers from what it found,
// so that whoever polls costs nothing. It acts on nothing, and stores nothing.
package apps

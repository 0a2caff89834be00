// SPDX-License-Identifier: BSD-2-Clause

// Package executor is the node-local life of containers: SwarmKit's executor
// and controller for tasks, and the same machinery for `run`; image, root,
// network, runtime, prober and traffic of one container, and its adoption
// after a restart of the daemon. Health lives here and never in the store.
//
// Up: root, network, container, start; a jail is made before it is attached
// to networks (Config.JailFirst), a Linux container joins a namespace made
// before. A pass of its probe proves a task; then it is served, then RUNNING.
//
// Down: out of traffic, confirmed; drain; stop signal; grace; SIGKILL. A task
// has ended when no process of it is left; its jail, interfaces and root go in
// the background, in that order. A stop is written down, goes on where it was
// under the next daemon, and is hastened by another one but never drawn out.
//
// Out of traffic without a stop: for its health (Record.Unrouted, until a
// pass; Record.Unhealthy, until its turn to be replaced or a pass), or by an
// operator's word on the task or the node, which no pass lifts and no fail-open
// overrules.
//
// What is told to package traffic goes through expose alone, which derives it
// from the record; what the cluster is told goes through the controller.
package executor

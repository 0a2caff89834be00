// SPDX-License-Identifier: BSD-2-Clause

// Package cluster is this node's roles: the manager's parts while it leads,
// and the agent always. It owns the node's identity (certificates, ID), the
// cluster's gRPC service and the allocation of published ports, and wires
// SwarmKit's engine to our raft. It decides nothing about containers, health
// or traffic: the executor it is given does.
package cluster

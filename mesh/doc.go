// SPDX-License-Identifier: BSD-2-Clause

// Package mesh brings together who serves on which node: a node tells the
// managers who of its tasks serves, within moments of a change; a manager hands
// to the workers what there is and what was said. Every node, manager or
// worker, asks each of the others for itself as well and judges by both.
// Nothing of it is stored, and no two observers share an observation
// (spec/application-health.txt, "How the gateway uses it").
//
// It knows tasks, nodes and addresses. How calls travel is the cluster's
// matter, what is done with the members traffic's.
package mesh

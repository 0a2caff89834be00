// SPDX-License-Identifier: BSD-2-Clause

// Package orchestrator keeps replicated and global services at what their
// specs say: restarts of tasks that failed, rolling updates and rollbacks,
// and the number of replicas. Jobs, scheduling and dispatching are SwarmKit's.
//
// It is level-triggered. Plan is a pure function of what the store holds of one
// service and of the time; it gives the changes to make, or the time to look
// again. The loop applies them and plans anew until nothing is left to do.
// Nothing is remembered that a new leader would not read in the store: what the
// fields of SwarmKit's objects cannot say is said by labels on the tasks
// (Task.Annotations, see labels.go).
//
// The planners run in this order, and each acts on a store that the one before
// has nothing left to do in:
//
//   - clock: what is stamped with a time that has not come yet is stamped anew
//   - restarts: a task that ended or whose node is lost gets its one
//     successor, unless its budget is exhausted; successors start when due
//   - rollouts: slots whose task is of an older spec get a new one, some at a
//     time, each on proof; failures pause or roll back
//   - replicas: slots that are missing are filled, surplus ones removed
//
// Rules: spec/healthchecks.txt ("The second difference"), DESIGN.md section 6,
// cases/update.md and cases/budget.md.
package orchestrator

// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import "container/heap"

// queue holds the containers that wait for a probe, the one due first ahead.
// It is the line for a slot as well: the longest overdue goes first.
type queue struct{ byDue byDue }

// first is the container due first, nil when none waits.
func (q *queue) first() *watched {
	if len(q.byDue) == 0 {
		return nil
	}
	return q.byDue[0]
}

// put adds a container, or moves it to where its NextProbe belongs now.
func (q *queue) put(e *watched) {
	if e.index >= 0 {
		heap.Fix(&q.byDue, e.index)
		return
	}
	heap.Push(&q.byDue, e)
}

// take removes a container, if it is in the queue.
func (q *queue) take(e *watched) {
	if e.index >= 0 {
		heap.Remove(&q.byDue, e.index)
	}
}

// byDue implements heap.Interface.
type byDue []*watched

func (q byDue) Len() int           { return len(q) }
func (q byDue) Less(i, j int) bool { return q[i].health.NextProbe.Before(q[j].health.NextProbe) }

func (q byDue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *byDue) Push(x any) {
	e := x.(*watched)
	e.index = len(*q)
	*q = append(*q, e)
}

func (q *byDue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q, e.index = (*q)[:last], -1
	return e
}

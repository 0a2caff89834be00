// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	swarmid "github.com/moby/swarmkit/v2/identity"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Reports are kept as SwarmKit resources of one kind, one a task, under the
// task's ID: snapshots and followers then have them without more.
const (
	reportKind = "satl.report"
	reportType = "satl.report/v1"

	reportService = "satl.report.service"
	reportVersion = "satl.report.version"
	reportSlot    = "satl.report.slot"
	reportNode    = "satl.report.node"
	reportImage   = "satl.report.image"
)

// What is kept of a service. A version's first reports are kept and later ones
// not written, so that a crash loop adds nothing to the log.
const (
	maxReportVersions    = 10
	maxReportsPerVersion = 10
	// maxReport bounds one report, in bytes: 4096 of console and 512 of a body,
	// both escaped, and the words around them.
	maxReport = 64 << 10
	// maxSweep is how many orphans one transaction removes.
	maxSweep = 100
)

// Report is why a task of a rollout failed, as its node told it.
type Report struct {
	TaskID    string
	ServiceID string
	NodeID    string
	Slot      uint64
	Version   uint64 // of the service's spec: Task.SpecVersion
	Image     string
	At        time.Time       // when it was stored
	Payload   json.RawMessage // what the node wrote
}

// KeepReport stores why a task failed, beside the version of the service that
// it belongs to. A second report of the same task changes nothing. A task that
// is not in the store is ErrNotFound, a report that is no JSON or too large
// ErrInvalidArgument.
//
// It is one half of executor.Leader.
func (n *Node) KeepReport(ctx context.Context, taskID string, report []byte) error {
	return n.member.Load().askLeader(ctx, "keep-report", taskReport{taskID, report}, nil)
}

// taskReport is a report on its way to the leader.
type taskReport struct {
	Task   string
	Report []byte
}

func (n *member) keepReport(ctx context.Context, caller string, in taskReport) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var t *api.Task
	n.store.View(func(tx store.ReadTx) { t = store.GetTask(tx, in.Task) })
	if t != nil && t.NodeID != caller {
		return nil, status.Errorf(codes.PermissionDenied, "task %s is not one of node %s", in.Task, caller)
	}
	if err := keepReport(n.store, in.Task, in.Report); err != nil {
		return nil, fmt.Errorf("keep the report of task %s: %w", in.Task, err)
	}
	return nil, nil
}

// Reports are the reports of a service, oldest version first, and in the
// order of their arrival within one.
func (n *Node) Reports(serviceID string) ([]Report, error) {
	var out []Report
	var err error
	n.Store().View(func(tx store.ReadTx) { out, err = reportsOf(tx, serviceID) })
	return out, err
}

func keepReport(s *store.MemoryStore, taskID string, report []byte) error {
	switch {
	case len(report) > maxReport:
		return errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf("%d bytes are more than the %d of a report", len(report), maxReport))
	case !json.Valid(report):
		return errdefs.ErrInvalidArgument.WithMessage("it is no JSON")
	}
	return s.Update(func(tx store.Tx) error {
		t := store.GetTask(tx, taskID)
		if t == nil {
			return errdefs.ErrNotFound.WithMessage("no such task")
		}
		kept, err := reportsOf(tx, t.ServiceID)
		if err != nil {
			return err
		}
		drop, write := planReport(kept, taskID, specVersion(t))
		if !write {
			return nil
		}
		for _, id := range drop {
			if err := store.DeleteResource(tx, id); err != nil {
				return err
			}
		}
		if err := sweepReports(tx); err != nil {
			return err
		}
		if err := registerReports(tx); err != nil {
			return err
		}
		return store.CreateResource(tx, newResource(t, report))
	})
}

// planReport tells whether a report of a version is written beside those kept
// of its service, oldest version first, and which then give way to it.
func planReport(kept []Report, taskID string, version uint64) (drop []string, write bool) {
	versions := map[uint64]int{version: 0}
	for _, r := range kept {
		if r.TaskID == taskID {
			return nil, false
		}
		versions[r.Version]++
	}
	if versions[version] >= maxReportsPerVersion {
		return nil, false
	}
	newest := slices.Sorted(maps.Keys(versions))
	newest = newest[max(0, len(newest)-maxReportVersions):]
	if version < newest[0] {
		return nil, false
	}
	for _, r := range kept {
		if r.Version < newest[0] {
			drop = append(drop, r.TaskID)
		}
	}
	return drop, true
}

// sweepReports removes reports of services that are no more: those of one
// that was removed by a leader that ended before it could do so.
func sweepReports(tx store.Tx) error {
	all, err := store.FindResources(tx, store.ByKind(reportKind))
	if err != nil {
		return err
	}
	swept := 0
	for _, r := range all {
		if swept == maxSweep {
			break
		}
		if store.GetService(tx, r.Annotations.Labels[reportService]) != nil {
			continue
		}
		if err := store.DeleteResource(tx, r.ID); err != nil {
			return err
		}
		swept++
	}
	return nil
}

// dropReports removes the reports of a service.
func dropReports(s *store.MemoryStore, serviceID string) error {
	return s.Update(func(tx store.Tx) error {
		kept, err := reportsOf(tx, serviceID)
		if err != nil {
			return err
		}
		for _, r := range kept {
			if err := store.DeleteResource(tx, r.TaskID); err != nil {
				return err
			}
		}
		return nil
	})
}

// registerReports makes the kind known to the store, once.
func registerReports(tx store.Tx) error {
	err := store.CreateExtension(tx, &api.Extension{
		ID:          swarmid.NewID(),
		Annotations: api.Annotations{Name: reportKind},
		Description: "why tasks of rollouts failed",
	})
	if errors.Is(err, store.ErrNameConflict) {
		return nil
	}
	return err
}

func newResource(t *api.Task, report []byte) *api.Resource {
	labels := map[string]string{
		reportService: t.ServiceID,
		reportVersion: strconv.FormatUint(specVersion(t), 10),
		reportSlot:    strconv.FormatUint(t.Slot, 10),
		reportNode:    t.NodeID,
	}
	if c := t.Spec.GetContainer(); c != nil {
		labels[reportImage] = c.Image
	}
	return &api.Resource{
		ID: t.ID, Kind: reportKind,
		Annotations: api.Annotations{Name: reportKind + "." + t.ID, Labels: labels},
		Payload:     &gogotypes.Any{TypeUrl: reportType, Value: report},
	}
}

// specVersion is the version of the spec that a task was made from; 0 is the
// one that its service was created with.
func specVersion(t *api.Task) uint64 {
	if t.SpecVersion == nil {
		return 0
	}
	return t.SpecVersion.Index
}

// reportsOf are the reports of a service, oldest version first.
func reportsOf(tx store.ReadTx, serviceID string) ([]Report, error) {
	all, err := store.FindResources(tx, store.ByKind(reportKind))
	if err != nil {
		return nil, fmt.Errorf("read reports of service %s: %w", serviceID, err)
	}
	var out []Report
	for _, r := range all {
		labels := r.Annotations.Labels
		if labels[reportService] != serviceID || r.Payload == nil {
			continue
		}
		report := Report{TaskID: r.ID, ServiceID: serviceID, NodeID: labels[reportNode], Image: labels[reportImage], Payload: r.Payload.Value}
		var errs [3]error
		report.Version, errs[0] = strconv.ParseUint(labels[reportVersion], 10, 64)
		report.Slot, errs[1] = strconv.ParseUint(labels[reportSlot], 10, 64)
		report.At, errs[2] = gogotypes.TimestampFromProto(r.Meta.CreatedAt)
		if err := errors.Join(errs[:]...); err != nil {
			return nil, fmt.Errorf("report of task %s: %w", r.ID, err)
		}
		out = append(out, report)
	}
	slices.SortFunc(out, func(a, b Report) int {
		return cmp.Or(cmp.Compare(a.Version, b.Version), a.At.Compare(b.At), strings.Compare(a.TaskID, b.TaskID))
	})
	return out, nil
}

// RemoveService removes a service, and what was kept of its failed versions.
func (c *control) RemoveService(ctx context.Context, r *api.RemoveServiceRequest) (*api.RemoveServiceResponse, error) {
	resp, err := c.Server.RemoveService(ctx, r)
	if err != nil {
		return nil, err
	}
	// The service is gone whatever becomes of its reports, which the next
	// report that is kept would sweep away.
	if err := dropReports(c.store, r.ServiceID); err != nil {
		c.log.Warn("reports of a removed service are left for later", "service", r.ServiceID, "error", err)
	}
	return resp, nil
}

// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"satld/raft"
)

// unsure loses the leadership at its first create: nobody can tell whether it
// takes place, which it does if late.
type unsure struct {
	api.ControlClient
	late bool
	lost bool
}

func (u *unsure) CreateService(ctx context.Context, in *api.CreateServiceRequest, opts ...grpc.CallOption) (*api.CreateServiceResponse, error) {
	if u.lost {
		return u.ControlClient.CreateService(ctx, in, opts...)
	}
	u.lost = true
	if u.late {
		if _, err := u.ControlClient.CreateService(ctx, in, opts...); err != nil {
			return nil, err
		}
	}
	return nil, status.Convert(&raft.WriteError{Reason: raft.ErrUnknown}).Err() // as it comes out of gRPC
}

// TestStore2: a create whose outcome is unknown is answered so, with a status
// that asks for another try, and a second one with the same name makes one
// service (cases/store.md, store-2).
func TestStore2(t *testing.T) {
	for late, second := range map[bool]int{true: http.StatusConflict, false: http.StatusCreated} {
		f := newFixture(t)
		f.cluster.control = &unsure{ControlClient: f.cluster.control, late: late}
		const spec = `{"Name":"web","TaskTemplate":{"ContainerSpec":{"Image":"image"}}}`
		code, _, body := f.do(t, "POST", "/services/create", spec)
		if code != http.StatusServiceUnavailable || !strings.Contains(body, "not known whether the write takes place") || !strings.Contains(body, "retry") {
			t.Errorf("late=%t: %d %s", late, code, body)
		}
		if code, _, body = f.do(t, "POST", "/services/create", spec); code != second {
			t.Errorf("late=%t, again: %d %s", late, code, body)
		}
		f.cluster.store.View(func(tx store.ReadTx) {
			if all, err := store.FindServices(tx, store.ByName("web")); err != nil || len(all) != 1 {
				t.Errorf("late=%t: %d services (%v)", late, len(all), err)
			}
		})
	}
}

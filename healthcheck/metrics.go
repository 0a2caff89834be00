// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics counts what the monitor does.
type metrics struct {
	verdicts *prometheus.CounterVec
	probes   *prometheus.CounterVec
}

// newMetrics registers the counters; without a registerer they count for nobody.
func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{
		verdicts: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "satl_health_verdicts_total",
			Help: "Changes of verdict of containers on this node, by the new verdict.",
		}, []string{"verdict"}),
		probes: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "satl_health_probes_total",
			Help: "Probes of containers on this node that ended and were judged, by result: pass, fail, or error (could not run or outlived its timeout).",
		}, []string{"result"}),
	}
	for _, s := range []Status{Healthy, Unhealthy} {
		m.verdicts.WithLabelValues(s.String()) // shown as 0 before the first
	}
	return m
}

func (m metrics) probed(r Result) {
	result := "fail"
	switch r.ExitCode {
	case 0:
		result = "pass"
	case -1:
		result = "error"
	}
	m.probes.WithLabelValues(result).Inc()
}

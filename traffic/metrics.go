// SPDX-License-Identifier: BSD-2-Clause

package traffic

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"satld/redirect"
)

// metrics is what a Table counts. Without a registerer it counts unseen.
type metrics struct {
	applies *prometheus.CounterVec
	seconds prometheus.Histogram
	drift   prometheus.Counter
	healthy prometheus.Gauge
	serving prometheus.Gauge
	pools   *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		applies: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "satl_traffic_applies_total", Help: "Writes of the packet filter, by result."}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "satl_traffic_apply_seconds", Help: "Time of one write of the packet filter.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 12)}),
		drift:   prometheus.NewCounter(prometheus.CounterOpts{Name: "satl_traffic_drift_total", Help: "Audits that found the packet filter changed by somebody else, or could not tell."}),
		healthy: prometheus.NewGauge(prometheus.GaugeOpts{Name: "satl_traffic_healthy", Help: "1 while the packet filter holds what it should."}),
		serving: prometheus.NewGauge(prometheus.GaugeOpts{Name: "satl_traffic_serving", Help: "Members that may be sent traffic."}),
		pools:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "satl_traffic_pools", Help: "Published ports, by whether anybody serves."}, []string{"state"}),
	}
	if r != nil {
		r.MustRegister(m.applies, m.seconds, m.drift, m.healthy, m.serving, m.pools)
	}
	return m
}

func (m metrics) applied(took time.Duration, err error) {
	m.seconds.Observe(took.Seconds())
	if err != nil {
		m.applies.WithLabelValues("failed").Inc()
		return
	}
	m.applies.WithLabelValues("ok").Inc()
}

func (m metrics) show(rules redirect.Rules, members []Member) {
	serving, empty := 0, 0
	for _, x := range members {
		if x.serves() {
			serving++
		}
	}
	for _, p := range rules.Pools {
		if len(p.Members) == 0 {
			empty++
		}
	}
	m.serving.Set(float64(serving))
	m.pools.WithLabelValues("empty").Set(float64(empty))
	m.pools.WithLabelValues("served").Set(float64(len(rules.Pools) - empty))
}

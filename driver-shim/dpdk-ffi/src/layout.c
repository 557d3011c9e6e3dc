/* Sizes and offsets as C sees them, for the test that compares them with Rust's. */
#include "shim.h"

size_t gn_layout(uint32_t *out, size_t n)
{
#define AT(type, field) offsetof(struct type, field)
	const uint32_t rows[] = {
		sizeof(struct gn_frame), AT(gn_frame, slot), AT(gn_frame, off), AT(gn_frame, len),
		AT(gn_frame, flags),
		sizeof(struct gn_tx), AT(gn_tx, slot), AT(gn_tx, off), AT(gn_tx, len),
		AT(gn_tx, flags), AT(gn_tx, l2_len), AT(gn_tx, l3_len),
		sizeof(struct gn_port_facts), AT(gn_port_facts, driver), AT(gn_port_facts, device),
		AT(gn_port_facts, mac), AT(gn_port_facts, queues_max), AT(gn_port_facts, mtu_min),
		AT(gn_port_facts, mtu_max), AT(gn_port_facts, rss_key_bytes),
		AT(gn_port_facts, mtu), AT(gn_port_facts, flags),
		sizeof(struct gn_port_conf), AT(gn_port_conf, queues), AT(gn_port_conf, rx_desc),
		AT(gn_port_conf, tx_desc), AT(gn_port_conf, mtu), AT(gn_port_conf, rss_key_bytes),
		AT(gn_port_conf, flags), AT(gn_port_conf, rss_key),
		sizeof(struct gn_port_stats), AT(gn_port_stats, rx_frames),
		AT(gn_port_stats, tx_frames), AT(gn_port_stats, rx_bytes),
		AT(gn_port_stats, tx_bytes), AT(gn_port_stats, rx_missed),
		AT(gn_port_stats, rx_errors), AT(gn_port_stats, rx_no_buffer),
		AT(gn_port_stats, tx_errors),
		sizeof(struct gn_rule), AT(gn_rule, address), AT(gn_rule, port), AT(gn_rule, flags),
		GN_BURST_MAX, GN_SLOT_BYTES, GN_NAME_BYTES, GN_RSS_KEY_BYTES,
		GN_RX_IP_GOOD, GN_RX_UDP_GOOD, GN_TX_IP, GN_TX_UDP, GN_TX_IPV6,
		GN_PORT_PCI, GN_PORT_TX_IP, GN_PORT_TX_UDP, GN_PORT_RSS, GN_CONF_RSS,
		GN_TOLD_RESET, GN_TOLD_REMOVED, GN_WHY_BYTES, GN_RULE_IPV6, GN_RULE_TCP,
	};
#undef AT
	const size_t rows_n = sizeof(rows) / sizeof(rows[0]);

	for (size_t i = 0; i < rows_n && i < n; i++)
		out[i] = rows[i];
	return rows_n;
}

/*
 * A small ABI over DPDK 22.11 or newer.
 *
 * No rte_* type crosses it. A buffer is named by its slot: its place in the caller's memory,
 * counted in slots of GN_SLOT_BYTES. The Rust side of each declaration, with its contract, is
 * src/lib.rs; layouts are compared by a test through gn_layout().
 *
 * Functions that return int give 0 or a count, or a negative errno.
 */
#ifndef GN_SHIM_H
#define GN_SHIM_H

#include <stddef.h>
#include <stdint.h>

#define GN_BURST_MAX 64
#define GN_SLOT_BYTES 2048
#define GN_NO_SLOT UINT32_MAX
#define GN_NAME_BYTES 64
#define GN_RSS_KEY_BYTES 128
#define GN_WHY_BYTES 128

/* gn_frame.flags */
#define GN_RX_IP_GOOD 1u
#define GN_RX_UDP_GOOD 2u

/* gn_tx.flags */
#define GN_TX_IP 1u
#define GN_TX_UDP 2u
#define GN_TX_IPV6 4u

/* gn_port_facts.flags */
#define GN_PORT_PCI 1u
#define GN_PORT_TX_IP 2u
#define GN_PORT_TX_UDP 4u
#define GN_PORT_RSS 8u

/* gn_port_conf.flags */
#define GN_CONF_RSS 1u
#define GN_TOLD_RESET 1u
#define GN_TOLD_REMOVED 2u

/* gn_rule.flags */
#define GN_RULE_IPV6 1u
#define GN_RULE_TCP 2u

struct gn_pool;

struct gn_frame {
	uint32_t slot;
	uint16_t off;
	uint16_t len;
	uint32_t flags;
};

struct gn_tx {
	uint32_t slot;
	uint16_t off;
	uint16_t len;
	uint8_t flags;
	uint8_t l2_len;
	uint8_t l3_len;
	uint8_t pad;
};

struct gn_port_facts {
	char driver[GN_NAME_BYTES];
	char device[GN_NAME_BYTES];
	uint8_t mac[6];
	uint16_t queues_max;
	uint16_t mtu_min;
	uint16_t mtu_max;
	uint16_t rss_key_bytes;
	uint16_t mtu;
	uint32_t flags;
};

struct gn_port_conf {
	uint16_t queues;
	uint16_t rx_desc;
	uint16_t tx_desc;
	uint16_t mtu;
	uint16_t rss_key_bytes;
	uint16_t flags;
	uint8_t rss_key[GN_RSS_KEY_BYTES];
};

struct gn_port_stats {
	uint64_t rx_frames;
	uint64_t tx_frames;
	uint64_t rx_bytes;
	uint64_t tx_bytes;
	uint64_t rx_missed;
	uint64_t rx_errors;
	uint64_t rx_no_buffer;
	uint64_t tx_errors;
};

struct gn_rule {
	uint8_t address[16];
	uint16_t port;
	uint16_t flags;
};

/* The environment. */
const char *gn_version(void);
int gn_eal_init(int argc, char **argv);
int gn_eal_cleanup(void);
const char *gn_runtime_dir(void);
int gn_thread_register(void);
void gn_thread_unregister(void);

/* The pool of buffers over the caller's memory. */
int gn_pool_create(void *base, uint64_t len, uint64_t page, uint32_t slots, uint32_t cache,
		   int node, struct gn_pool **out);
void gn_pool_free(struct gn_pool *pool);
int gn_pool_dma_map(struct gn_pool *pool, uint16_t port);
uint32_t gn_pool_take(struct gn_pool *pool);
void gn_pool_give(struct gn_pool *pool, uint32_t slot);
uint32_t gn_pool_available(const struct gn_pool *pool);
int gn_pool_is_whole(struct gn_pool *pool);

/* Ports. */
int gn_dev_probe(const char *devargs);
int gn_port_find(const char *device);
int gn_port_facts(uint16_t port, struct gn_port_facts *out);
int gn_port_configure(uint16_t port, struct gn_port_conf *conf);
int gn_port_rx_queue(uint16_t port, uint16_t queue, uint16_t desc, struct gn_pool *pool);
int gn_port_tx_queue(uint16_t port, uint16_t queue, uint16_t desc);
int gn_port_start(uint16_t port);
int gn_port_promiscuous(uint16_t port, int on);
int gn_port_all_multicast(uint16_t port);
int gn_port_link_up(uint16_t port);
int gn_port_stats(uint16_t port, struct gn_port_stats *out);
int gn_port_watch(uint16_t port);
uint32_t gn_port_told(uint16_t port);
int gn_port_reset(uint16_t port);
int gn_port_close(uint16_t port, struct gn_pool *pool, int unplug);
int gn_port_isolate(uint16_t port, char *why);
int gn_port_rule(uint16_t port, const struct gn_rule *rule, const struct gn_port_conf *conf, char *why);

/* The hot path. */
uint16_t gn_rx_burst(struct gn_pool *pool, uint16_t port, uint16_t queue, struct gn_frame *out,
		     uint16_t n, uint64_t *bad);
uint16_t gn_tx_burst(struct gn_pool *pool, uint16_t port, uint16_t queue, const struct gn_tx *in,
		     uint16_t n);

/* Sizes and offsets of the structs above, in the order that src/lib.rs repeats. */
size_t gn_layout(uint32_t *out, size_t n);

#endif

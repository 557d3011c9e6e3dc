#include "shim.h"
#include "umem.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_alarm.h>
#include <rte_bus.h>
#include <rte_config.h>
#include <rte_dev.h>
#include <rte_devargs.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_memory.h>
#include <rte_mempool.h>
#include <rte_version.h>

#if RTE_VERSION < RTE_VERSION_NUM(22, 11, 0, 0)
#error "DPDK 22.11 LTS or newer is needed"
#endif

struct gn_pool {
	struct rte_mempool *mp;
	uint8_t *base;
	uint64_t len;
	uint64_t bytes; /* of the slots; len is that of the mapping */
	uint32_t slots;
	/* PCI devices that may reach the memory. */
	uint32_t mapped_count;
	struct rte_device *mapped[RTE_MAX_ETHPORTS];
	struct rte_mbuf *mbuf[];
};

/* rte_errno as a negative error, never 0. */
static int failed(void)
{
	return rte_errno > 0 ? -rte_errno : -EIO;
}

/* ---- the environment ---- */

const char *gn_version(void)
{
	return rte_version();
}

int gn_eal_init(int argc, char **argv)
{
	/* By default DPDK writes to standard output and to syslog. */
	rte_openlog_stream(stderr);
	return rte_eal_init(argc, argv) < 0 ? failed() : 0;
}

/* DPDK's interrupt thread waits for ever, with an alarm in its hands (close_memif). */
static int interrupts_ended;

int gn_eal_cleanup(void)
{
	/* It would wait for that alarm; and without it the thread's memory stays. */
	if (__atomic_load_n(&interrupts_ended, __ATOMIC_ACQUIRE))
		return 0;
	return rte_eal_cleanup();
}

const char *gn_runtime_dir(void)
{
	return rte_eal_get_runtime_dir();
}

int gn_thread_register(void)
{
	if (rte_lcore_id() != LCORE_ID_ANY)
		return -EEXIST;
	return rte_thread_register() < 0 ? failed() : 0;
}

/* The cache of a thread that is gone would keep its buffers from everybody else. */
static void flush_cache(struct rte_mempool *mp, void *unused)
{
	(void)unused;
	rte_mempool_cache_flush(NULL, mp);
}

void gn_thread_unregister(void)
{
	rte_mempool_walk(flush_cache, NULL);
	rte_thread_unregister();
}

/* ---- the pool ---- */

static uint32_t slot_of(const struct gn_pool *pool, const struct rte_mbuf *m)
{
	uint64_t at = (uint64_t)((uintptr_t)m->buf_addr - (uintptr_t)pool->base);

	return at < pool->bytes ? (uint32_t)(at / GN_SLOT_BYTES) : GN_NO_SLOT;
}

static void enter_mbuf(struct rte_mempool *mp, void *arg, void *obj, unsigned int index)
{
	struct gn_pool *pool = arg;
	uint32_t slot = slot_of(pool, obj);

	(void)mp;
	(void)index;
	if (slot != GN_NO_SLOT)
		pool->mbuf[slot] = obj;
}

void gn_pool_free(struct gn_pool *pool)
{
	if (pool == NULL)
		return;
	rte_mempool_free(pool->mp);
	/* Two devices behind one IOMMU container share a mapping: the second unmap fails, rightly. */
	for (uint32_t i = 0; i < pool->mapped_count; i++)
		rte_dev_dma_unmap(pool->mapped[i], pool->base, (uintptr_t)pool->base, pool->len);
	rte_extmem_unregister(pool->base, pool->len);
	free(pool);
}

int gn_pool_create(void *base, uint64_t len, uint64_t page, uint32_t slots, uint32_t cache,
		   int node, struct gn_pool **out)
{
	static uint32_t serial;
	char name[RTE_MEMPOOL_NAMESIZE];
	struct rte_pktmbuf_extmem ext = {
		.buf_ptr = base,
		.buf_iova = (rte_iova_t)(uintptr_t)base, /* IOVA=VA, as gn_eal_init is asked for */
		.buf_len = (size_t)slots * GN_SLOT_BYTES,
		.elt_size = GN_SLOT_BYTES,
	};
	struct gn_pool *pool;
	int rc;

	if (slots == 0 || ext.buf_len > len)
		return -EINVAL;
	pool = calloc(1, sizeof(*pool) + (size_t)slots * sizeof(pool->mbuf[0]));
	if (pool == NULL)
		return -ENOMEM;
	pool->base = base;
	pool->len = len;
	pool->bytes = ext.buf_len;
	pool->slots = slots;
	if (rte_extmem_register(base, len, NULL, 0, page) < 0) {
		rc = failed();
		free(pool);
		return rc;
	}
	snprintf(name, sizeof(name), "gnomon_%u", __atomic_fetch_add(&serial, 1, __ATOMIC_RELAXED));
	pool->mp = rte_pktmbuf_pool_create_extbuf(name, slots, cache, 0, GN_SLOT_BYTES,
						  node, &ext, 1);
	if (pool->mp == NULL) {
		rc = failed();
		gn_pool_free(pool);
		return rc;
	}
	rte_mempool_obj_iter(pool->mp, enter_mbuf, pool);
	for (uint32_t i = 0; i < slots; i++) {
		if (pool->mbuf[i] == NULL) {
			gn_pool_free(pool);
			return -EFAULT;
		}
	}
	*out = pool;
	return 0;
}

int gn_pool_dma_map(struct gn_pool *pool, uint16_t port)
{
	struct rte_eth_dev_info info;
	int rc = rte_eth_dev_info_get(port, &info);

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < pool->mapped_count; i++)
		if (pool->mapped[i] == info.device)
			return 0;
	if (pool->mapped_count == RTE_MAX_ETHPORTS)
		return -ENOSPC;
	if (rte_dev_dma_map(info.device, pool->base, (uintptr_t)pool->base, pool->len) < 0)
		return failed();
	pool->mapped[pool->mapped_count++] = info.device;
	return 0;
}

/*
 * Takes the memory back from a device that is about to go; but from the last one only, since NICs
 * under vfio share one container, and with it one mapping.
 */
static void forget_device(struct gn_pool *pool, struct rte_device *device)
{
	for (uint32_t i = 0; i < pool->mapped_count; i++) {
		if (pool->mapped[i] != device)
			continue;
		if (pool->mapped_count == 1)
			rte_dev_dma_unmap(device, pool->base, (uintptr_t)pool->base, pool->len);
		pool->mapped[i] = pool->mapped[--pool->mapped_count];
		return;
	}
}

uint32_t gn_pool_take(struct gn_pool *pool)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool->mp);

	return m == NULL ? GN_NO_SLOT : slot_of(pool, m);
}

void gn_pool_give(struct gn_pool *pool, uint32_t slot)
{
	rte_pktmbuf_free(pool->mbuf[slot]);
}

uint32_t gn_pool_available(const struct gn_pool *pool)
{
	return rte_mempool_avail_count(pool->mp);
}

/*
 * A buffer in another thread's cache does not count: that thread may be putting it there right
 * now, and its cache is part of the pool. What is in the ring, its thread is done with: the last
 * step of an enqueue is the one that the count sees.
 */
int gn_pool_is_whole(struct gn_pool *pool)
{
	unsigned int in_ring;

	rte_mempool_cache_flush(NULL, pool->mp);
	in_ring = rte_mempool_get_ops(pool->mp->ops_index)->get_count(pool->mp);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return in_ring == pool->slots;
}

/* ---- ports ---- */

int gn_dev_probe(const char *devargs)
{
	return rte_dev_probe(devargs);
}

int gn_port_find(const char *device)
{
	struct rte_eth_dev_info info;
	uint16_t port;

	if (rte_eth_dev_get_port_by_name(device, &port) == 0)
		return port;
	RTE_ETH_FOREACH_DEV(port) {
		if (rte_eth_dev_info_get(port, &info) == 0 && info.device != NULL &&
		    strcmp(rte_dev_name(info.device), device) == 0)
			return port;
	}
	return -ENODEV;
}

static int is_pci(const struct rte_device *device)
{
	return device != NULL && strcmp(rte_bus_name(rte_dev_bus(device)), "pci") == 0;
}

int gn_port_facts(uint16_t port, struct gn_port_facts *out)
{
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac;
	int rc = rte_eth_dev_info_get(port, &info);

	if (rc == 0)
		rc = rte_eth_macaddr_get(port, &mac);
	if (rc < 0)
		return rc;
	memset(out, 0, sizeof(*out));
	snprintf(out->driver, sizeof(out->driver), "%s", info.driver_name ? info.driver_name : "");
	snprintf(out->device, sizeof(out->device), "%s",
		 info.device ? rte_dev_name(info.device) : "");
	memcpy(out->mac, mac.addr_bytes, sizeof(out->mac));
	out->queues_max = RTE_MIN(info.max_rx_queues, info.max_tx_queues);
	out->mtu_min = info.min_mtu;
	out->mtu_max = info.max_mtu;
	out->rss_key_bytes = info.hash_key_size;
	rc = rte_eth_dev_get_mtu(port, &out->mtu);
	if (rc < 0)
		return rc;
	if (is_pci(info.device))
		out->flags |= GN_PORT_PCI;
	if (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_IPV4_CKSUM)
		out->flags |= GN_PORT_TX_IP;
	if (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_UDP_CKSUM)
		out->flags |= GN_PORT_TX_UDP;
	if (info.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP))
		out->flags |= GN_PORT_RSS;
	return 0;
}

/*
 * Checksums that the device is to look at. The NICs of virtual machines take that for leave to hand
 * over frames from their own host whose sums nobody has filled in, whatever the protocol; whoever
 * gets such a frame from us, the kernel behind the exception path, finds it broken. Not asked for, the
 * host fills them in. vmxnet3 knows but one switch for all sums, virtio none for IPv4 headers.
 */
static uint64_t rx_checksums(const struct rte_eth_dev_info *info)
{
	static const char *const hosted[] = { "net_virtio", "net_vmxnet3" };

	for (size_t i = 0; info->driver_name != NULL && i < RTE_DIM(hosted); i++)
		if (strncmp(info->driver_name, hosted[i], strlen(hosted[i])) == 0)
			return 0;
	return info->rx_offload_capa & (RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM);
}

/*
 * A packet socket's frames come without their VLAN tags, which the kernel tells of beside them. The driver puts them
 * back in, but not into memory that is the caller's, and then complains of each frame. Told to leave them out, it
 * does neither, and put_tag_back does it.
 */
static uint64_t rx_tags(const struct rte_eth_dev_info *info)
{
	if (info->driver_name == NULL || strcmp(info->driver_name, "net_af_packet") != 0)
		return 0;
	return info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_VLAN_STRIP;
}

int gn_port_configure(uint16_t port, struct gn_port_conf *conf)
{
	struct rte_eth_dev_info info;
	struct rte_eth_conf eth;
	int rc = rte_eth_dev_info_get(port, &info);

	if (rc < 0)
		return rc;
	if (conf->rss_key_bytes > sizeof(conf->rss_key))
		return -E2BIG;
	memset(&eth, 0, sizeof(eth));
	eth.rxmode.mtu = conf->mtu;
	eth.rxmode.offloads = rx_checksums(&info) | rx_tags(&info);
	eth.txmode.offloads = info.tx_offload_capa &
		(RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM);
	/* Not lsc: with it the link's state is only as good as the device's interrupts. */
	eth.intr_conf.rmv = (*info.dev_flags & RTE_ETH_DEV_INTR_RMV) != 0;
	if (conf->flags & GN_CONF_RSS) {
		eth.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		eth.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads &
			(RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_TCP);
		eth.rx_adv_conf.rss_conf.rss_key = conf->rss_key;
		eth.rx_adv_conf.rss_conf.rss_key_len = (uint8_t)conf->rss_key_bytes;
	}
	rc = rte_eth_dev_configure(port, conf->queues, conf->queues, &eth);
	if (rc == 0)
		rc = rte_eth_dev_adjust_nb_rx_tx_desc(port, &conf->rx_desc, &conf->tx_desc);
	if (rc == 0) {
		rc = rte_eth_dev_set_mtu(port, conf->mtu);
		if (rc == -ENOTSUP)
			rc = 0;
	}
	return rc;
}

/* The driver counts what it hands back as errors, and the caller sends that again, or counts it. */
static uint8_t hands_back[RTE_MAX_ETHPORTS];

int gn_port_rx_queue(uint16_t port, uint16_t queue, uint16_t desc, struct gn_pool *pool)
{
	struct rte_mempool *mp = pool->mp;
	int rc = gn_umem_of(port, queue, desc, &mp);

	hands_back[port] = mp != pool->mp;
	return rc < 0 ? rc : rte_eth_rx_queue_setup(port, queue, desc, rte_eth_dev_socket_id(port),
						    NULL, mp);
}

int gn_port_tx_queue(uint16_t port, uint16_t queue, uint16_t desc)
{
	return rte_eth_tx_queue_setup(port, queue, desc, rte_eth_dev_socket_id(port), NULL);
}

/* Frames lost because no slot was free to move them into. */
static uint64_t no_slot[RTE_MAX_ETHPORTS];

int gn_port_start(uint16_t port)
{
	__atomic_store_n(&no_slot[port], 0, __ATOMIC_RELAXED);
	rte_eth_stats_reset(port); /* a device that cannot starts from what it has */
	return rte_eth_dev_start(port);
}

int gn_port_promiscuous(uint16_t port, int on)
{
	return on ? rte_eth_promiscuous_enable(port) : rte_eth_promiscuous_disable(port);
}

int gn_port_all_multicast(uint16_t port)
{
	return rte_eth_allmulticast_enable(port);
}

int gn_port_link_up(uint16_t port)
{
	struct rte_eth_link link;
	int rc = rte_eth_link_get_nowait(port, &link);

	return rc < 0 ? rc : link.link_status == RTE_ETH_LINK_UP;
}

int gn_port_stats(uint16_t port, struct gn_port_stats *out)
{
	struct rte_eth_stats s;
	uint64_t lost;
	int rc = rte_eth_stats_get(port, &s);

	if (rc < 0)
		return rc;
	lost = __atomic_load_n(&no_slot[port], __ATOMIC_RELAXED);
	out->rx_frames = s.ipackets - RTE_MIN(s.ipackets, lost);
	out->tx_frames = s.opackets;
	out->rx_bytes = s.ibytes;
	out->tx_bytes = s.obytes;
	out->rx_missed = s.imissed;
	out->rx_errors = s.ierrors;
	out->rx_no_buffer = s.rx_nombuf + lost;
	out->tx_errors = hands_back[port] ? 0 : s.oerrors;
	return 0;
}

/* What each port's device has told since it was last asked. Written by DPDK's own thread. */
static uint32_t told[RTE_MAX_ETHPORTS];

static int on_event(uint16_t port, enum rte_eth_event_type event, void *bit, void *unused)
{
	(void)event;
	(void)unused;
	__atomic_fetch_or(&told[port], (uint32_t)(uintptr_t)bit, __ATOMIC_RELAXED);
	return 0;
}

static const struct {
	enum rte_eth_event_type event;
	uintptr_t bit;
} watched[] = {
	{ RTE_ETH_EVENT_INTR_RESET, GN_TOLD_RESET },
	{ RTE_ETH_EVENT_INTR_RMV, GN_TOLD_REMOVED },
};

/* vfio: somebody unplugs the device, and waits until we let go of it. */
static void on_request(const char *device, enum rte_dev_event_type event, void *port)
{
	(void)device;
	if (event == RTE_DEV_EVENT_REMOVE)
		__atomic_fetch_or(&told[(uintptr_t)port], GN_TOLD_REMOVED, __ATOMIC_RELAXED);
}

int gn_port_watch(uint16_t port)
{
	struct rte_eth_dev_info info;
	int rc = rte_eth_dev_info_get(port, &info);

	for (size_t i = 0; i < RTE_DIM(watched) && rc == 0; i++)
		rc = rte_eth_dev_callback_register(port, watched[i].event, on_event,
						   (void *)watched[i].bit);
	if (rc == 0 && is_pci(info.device))
		rc = rte_dev_event_callback_register(rte_dev_name(info.device), on_request,
						     (void *)(uintptr_t)port);
	return rc;
}

static void unwatch(uint16_t port, const struct rte_device *device)
{
	for (size_t i = 0; i < RTE_DIM(watched); i++)
		rte_eth_dev_callback_unregister(port, watched[i].event, on_event,
						(void *)watched[i].bit);
	if (is_pci(device))
		rte_dev_event_callback_unregister(rte_dev_name(device), on_request,
						  (void *)(uintptr_t)port);
	__atomic_store_n(&told[port], 0, __ATOMIC_RELAXED);
}

uint32_t gn_port_told(uint16_t port)
{
	uint32_t bits = __atomic_exchange_n(&told[port], 0, __ATOMIC_RELAXED);

	/* Some devices do not tell, and know when they are asked. */
	return rte_eth_dev_is_removed(port) == 1 ? bits | GN_TOLD_REMOVED : bits;
}

int gn_port_reset(uint16_t port)
{
	int rc = rte_eth_dev_reset(port);

	/* What has no reset of its own is set up anew from a stop. */
	return rc == -ENOTSUP ? rte_eth_dev_stop(port) : rc;
}

/* Longest wait for DPDK's interrupt thread, in seconds. */
#define CLOSE_MAX_S 5

static struct closing {
	uint16_t port;
	int server, begun, rc;
	sem_t done;
} closing[RTE_MAX_ETHPORTS];

static int stop_and_close(uint16_t port)
{
	int stopped = rte_eth_dev_stop(port);
	int closed = rte_eth_dev_close(port);

	return stopped < 0 ? stopped : closed;
}

static void close_by_alarm(void *arg)
{
	struct closing *c = arg;
	sem_t never;

	if (__atomic_exchange_n(&c->begun, 1, __ATOMIC_ACQ_REL))
		return;
	c->rc = stop_and_close(c->port);
	if (c->server)
		__atomic_store_n(&interrupts_ended, 1, __ATOMIC_RELEASE);
	sem_init(&never, 0, 0);
	sem_post(&c->done);
	while (c->server)
		sem_wait(&never);
}

/*
 * memif frees a connection when its port is stopped, and in DPDK's interrupt thread when the peer
 * leaves, which it does on hearing of the first. So that thread does both: it is where alarms are called.
 * A server also frees its listener, which the thread goes on to look at: it may do nothing after that.
 */
static int close_memif(uint16_t port, const struct rte_device *device)
{
	struct closing *c = &closing[port];
	const struct rte_devargs *devargs = rte_dev_devargs(device);
	struct timespec deadline;

	if (__atomic_load_n(&interrupts_ended, __ATOMIC_ACQUIRE))
		return stop_and_close(port);
	c->port = port;
	c->begun = 0;
	/* "master" is an older word for it. */
	c->server = devargs != NULL && devargs->args != NULL &&
		    (strstr(devargs->args, "role=server") != NULL || strstr(devargs->args, "role=master") != NULL);
	sem_init(&c->done, 0, 0);
	clock_gettime(CLOCK_MONOTONIC, &deadline);
	if (rte_eal_alarm_set(1, close_by_alarm, c) == 0)
		deadline.tv_sec += CLOSE_MAX_S;
	while (sem_clockwait(&c->done, CLOCK_MONOTONIC, &deadline) < 0) {
		if (errno == EINTR)
			continue;
		if (!__atomic_exchange_n(&c->begun, 1, __ATOMIC_ACQ_REL)) {
			rte_eal_alarm_cancel(close_by_alarm, c);
			return stop_and_close(port);
		}
		/* It has begun: as long as the driver takes. */
		deadline.tv_sec += CLOSE_MAX_S;
	}
	return c->rc;
}

int gn_port_close(uint16_t port, struct gn_pool *pool, int unplug)
{
	struct rte_eth_dev_info info;
	int rc = rte_eth_dev_info_get(port, &info);

	if (rc < 0)
		return rc;
	unwatch(port, info.device);
	if (strcmp(info.driver_name, "net_memif") == 0)
		rc = close_memif(port, info.device);
	else
		rc = stop_and_close(port);
	gn_umem_free(port, info.nb_rx_queues);
	if (unplug && info.device != NULL) {
		int removed;

		/* The device's memory goes with it: the pool must not remember it. */
		forget_device(pool, info.device);
		removed = rte_dev_remove(info.device);
		if (rc == 0)
			rc = removed;
	}
	return rc;
}

/* ---- the hot path ---- */

/* Puts the VLAN tag that was taken out of a frame behind its addresses again. False: there is no room. */
static bool put_tag_back(struct rte_mbuf *m)
{
	struct rte_vlan_hdr tag = { .vlan_tci = rte_cpu_to_be_16(m->vlan_tci) };
	struct rte_ether_hdr *eth;

	if (m->data_len < RTE_ETHER_HDR_LEN)
		return false;
	tag.eth_proto = rte_pktmbuf_mtod(m, struct rte_ether_hdr *)->ether_type;
	eth = (struct rte_ether_hdr *)rte_pktmbuf_prepend(m, sizeof(tag));
	if (eth == NULL)
		return false;
	memmove(eth, (char *)eth + sizeof(tag), 2 * RTE_ETHER_ADDR_LEN);
	eth->ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_VLAN);
	memcpy(eth + 1, &tag, sizeof(tag));
	return true;
}

/* Fills `out` from `m`, or frees `m` whole and says 0. */
static inline uint16_t name_mbuf(struct gn_pool *pool, struct rte_mbuf *m, struct gn_frame *out)
{
	uint32_t slot = slot_of(pool, m);
	uint64_t ol;

	/*
	 * Devices whose buffer sizes come in steps of 1 KB cut longer frames in two; the first
	 * buffer has room for both parts. What still does not fit one slot, is not ours alone,
	 * or is another buffer's memory under a header of its own, cannot become a frame.
	 */
	if (unlikely(m->nb_segs != 1) &&
	    (rte_mbuf_refcnt_read(m) != 1 || rte_pktmbuf_linearize(m) != 0))
		goto refuse;
	if (unlikely(slot == GN_NO_SLOT || pool->mbuf[slot] != m ||
		     rte_mbuf_refcnt_read(m) != 1 || m->data_len != m->pkt_len ||
		     (uint32_t)m->data_off + m->data_len > GN_SLOT_BYTES))
		goto refuse;
	ol = m->ol_flags;
	if (unlikely((ol & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0 && !put_tag_back(m)))
		goto refuse;
	out->slot = slot;
	out->off = m->data_off;
	out->len = m->data_len;
	out->flags = 0;
	if ((ol & RTE_MBUF_F_RX_IP_CKSUM_MASK) == RTE_MBUF_F_RX_IP_CKSUM_GOOD)
		out->flags |= GN_RX_IP_GOOD;
	/* NONE is "not filled in, but the data is verified": a frame from this very host. */
	if ((ol & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_GOOD ||
	    (ol & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_NONE)
		out->flags |= GN_RX_UDP_GOOD;
	return 1;
refuse:
	rte_pktmbuf_free(m);
	return 0;
}

uint16_t gn_rx_burst(struct gn_pool *pool, uint16_t port, uint16_t queue, struct gn_frame *out,
		     uint16_t n, uint64_t *bad)
{
	struct rte_mbuf *m[GN_BURST_MAX];
	uint16_t got = rte_eth_rx_burst(port, queue, m, RTE_MIN(n, (uint16_t)GN_BURST_MAX));
	uint16_t named = 0, lost = 0;

	for (uint16_t i = 0; i < got; i++) {
		if (unlikely(slot_of(pool, m[i]) == GN_NO_SLOT))
			m[i] = gn_umem_move(pool->mp, m[i]);
		if (unlikely(m[i] == NULL))
			lost++;
		else
			named += name_mbuf(pool, m[i], &out[named]);
	}
	if (unlikely(lost != 0))
		__atomic_fetch_add(&no_slot[port], lost, __ATOMIC_RELAXED);
	*bad += got - named - lost;
	return named;
}

uint16_t gn_tx_burst(struct gn_pool *pool, uint16_t port, uint16_t queue, const struct gn_tx *in,
		     uint16_t n)
{
	struct rte_mbuf *m[GN_BURST_MAX];

	n = RTE_MIN(n, (uint16_t)GN_BURST_MAX);
	for (uint16_t i = 0; i < n; i++) {
		struct rte_mbuf *b = pool->mbuf[in[i].slot];
		uint64_t ol = RTE_MBUF_F_EXTERNAL; /* the pool's memory is the caller's */

		if (in[i].flags & (GN_TX_IP | GN_TX_UDP)) {
			ol |= in[i].flags & GN_TX_IPV6 ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4;
			if (in[i].flags & GN_TX_IP)
				ol |= RTE_MBUF_F_TX_IP_CKSUM;
			if (in[i].flags & GN_TX_UDP)
				ol |= RTE_MBUF_F_TX_UDP_CKSUM;
		}
		b->data_off = in[i].off;
		b->data_len = in[i].len;
		b->pkt_len = in[i].len;
		b->nb_segs = 1;
		b->next = NULL;
		b->ol_flags = ol;
		b->tx_offload = 0;
		b->l2_len = in[i].l2_len;
		b->l3_len = in[i].l3_len;
		m[i] = b;
	}
	return rte_eth_tx_burst(port, queue, m, n);
}

/*
 * net_af_xdp makes its UMEM, the memory that the kernel copies frames into, of all of a mempool: each
 * chunk is a buffer's header with the data behind it, one after the other from the start of a page. A
 * slot has its header elsewhere, and with the header in it would be too short. So each queue gets a
 * mempool of that shape, and gn_rx_burst moves frames into slots; to send, the driver copies by itself.
 */
#include "umem.h"
#include "shim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <rte_errno.h>
#include <rte_ethdev.h>

/* What the kernel leaves free before a frame, behind the mbuf's headroom: XDP_PACKET_HEADROOM. */
#define XDP_HEADROOM 256
/* With the longest frame of a slot. A chunk must have 2,048 bytes at least, and a page at most. */
#define ROOM (XDP_HEADROOM + GN_SLOT_BYTES)
/* Chunks that wait to be filled, and that have been sent and not been fetched yet, at most. */
#define RING 2048
#define CACHE 64
/* What two threads' caches hold back, and two bursts. */
#define SPARE (2 * CACHE * 3 / 2 + 2 * GN_BURST_MAX)

static void name_of(char *name, uint16_t port, uint16_t queue)
{
	snprintf(name, RTE_MEMPOOL_NAMESIZE, "gnomon_umem_%u_%u", port, queue);
}

static void unmap(struct rte_mempool_memhdr *chunk, void *bytes)
{
	munmap(chunk->addr, (size_t)(uintptr_t)bytes);
}

int gn_umem_of(uint16_t port, uint16_t queue, uint16_t desc, struct rte_mempool **out)
{
	struct rte_pktmbuf_pool_private facts = { .mbuf_data_room_size = ROOM };
	struct rte_eth_dev_info info;
	char name[RTE_MEMPOOL_NAMESIZE];
	struct rte_mempool *mp;
	void *memory;
	size_t bytes;
	uint32_t n = 2 * RING + desc + SPARE;
	int rc = rte_eth_dev_info_get(port, &info);

	if (rc < 0 || info.driver_name == NULL || strcmp(info.driver_name, "net_af_xdp") != 0)
		return rc;
	name_of(name, port, queue);
	/* Not contiguous for a device: then buffers lie across the borders of pages, without gaps. */
	mp = rte_mempool_create_empty(name, n, sizeof(struct rte_mbuf) + ROOM, CACHE, sizeof(facts),
				      rte_eth_dev_socket_id(port), RTE_MEMPOOL_F_NO_IOVA_CONTIG);
	if (mp == NULL)
		return rte_errno > 0 ? -rte_errno : -ENOMEM;
	rte_pktmbuf_pool_init(mp, &facts);
	bytes = (size_t)n * rte_mempool_calc_obj_size(mp->elt_size, mp->flags, NULL);
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) {
		rte_mempool_free(mp);
		return -ENOMEM;
	}
	rc = rte_mempool_populate_iova(mp, memory, RTE_BAD_IOVA, bytes, unmap, (void *)(uintptr_t)bytes);
	if (rc != (int)n) {
		/* The mempool has the memory once a buffer is in it. */
		if (rc <= 0)
			munmap(memory, bytes);
		rte_mempool_free(mp);
		return rc < 0 ? rc : -ENOMEM;
	}
	rte_mempool_obj_iter(mp, rte_pktmbuf_init, NULL);
	*out = mp;
	return 0;
}

struct rte_mbuf *gn_umem_move(struct rte_mempool *to, struct rte_mbuf *from)
{
	struct rte_mbuf *m;

	if (from->nb_segs != 1 || from->data_len > GN_SLOT_BYTES - RTE_PKTMBUF_HEADROOM)
		return from;
	m = rte_pktmbuf_alloc(to);
	if (m != NULL) {
		m->ol_flags |= from->ol_flags &
			(RTE_MBUF_F_RX_IP_CKSUM_MASK | RTE_MBUF_F_RX_L4_CKSUM_MASK);
		m->data_len = from->data_len;
		m->pkt_len = from->data_len;
		memcpy(rte_pktmbuf_mtod(m, void *), rte_pktmbuf_mtod(from, void *), from->data_len);
	}
	rte_pktmbuf_free(from);
	return m;
}

void gn_umem_free(uint16_t port, uint16_t queues)
{
	char name[RTE_MEMPOOL_NAMESIZE];

	for (uint16_t queue = 0; queue < queues; queue++) {
		name_of(name, port, queue);
		rte_mempool_free(rte_mempool_lookup(name));
	}
}

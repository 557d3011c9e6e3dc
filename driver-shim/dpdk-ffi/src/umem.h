/*
 * Buffers of their own for the queues of drivers that cannot receive into the caller's. Within the shim
 * only.
 */
#ifndef GN_UMEM_H
#define GN_UMEM_H

#include <stdint.h>

#include <rte_mbuf.h>
#include <rte_mempool.h>

/*
 * Puts into *mp the buffers that the port's queue of `desc` descriptors must receive into, where they
 * cannot be those that *mp names. 0, or a negative errno.
 */
int gn_umem_of(uint16_t port, uint16_t queue, uint16_t desc, struct rte_mempool **mp);

/*
 * Moves a frame that lies in such a buffer into one of `to`, behind its headroom. NULL when none is free; what fits
 * none stays where it is.
 */
struct rte_mbuf *gn_umem_move(struct rte_mempool *to, struct rte_mbuf *from);

/* Frees those of all queues; the port is closed. */
void gn_umem_free(uint16_t port, uint16_t queues);

#endif

/*
 * What either end of a queue pair does with libibverbs: finds its address among the device's GIDs, and brings the pair
 * to where it sends and receives.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* READs of a queue pair that are under way. */
enum { READS_MAX = 16 };

static void die(const char *what)
{
	printf("FAILED %s: %s\n", what, strerror(errno));
	exit(1);
}

/* The GID that is an address. */
static union ibv_gid gid_of(const struct sockaddr_storage *address)
{
	union ibv_gid gid = { .raw = { 0 } };
	if (address->ss_family == AF_INET6) {
		memcpy(gid.raw, &((const struct sockaddr_in6 *)address)->sin6_addr, 16);
	} else {
		memset(gid.raw + 10, 0xff, 2);
		memcpy(gid.raw + 12, &((const struct sockaddr_in *)address)->sin_addr, 4);
	}
	return gid;
}

static struct ibv_context *open_device(void)
{
	int n = 0;
	struct ibv_context *device = NULL;
	struct ibv_device **list = ibv_get_device_list(&n);
	if (!list || n == 0 || !(device = ibv_open_device(list[0])))
		die("no RDMA device");
	ibv_free_device_list(list);
	return device;
}

/* The address stands in the table for RoCE v1, too, mostly first. */
static int gid_index(struct ibv_context *device, union ibv_gid gid)
{
	for (int i = 0; i < 64; i++) {
		struct ibv_gid_entry entry;
		if (!ibv_query_gid_ex(device, 1, i, &entry, 0) && entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
		    !memcmp(&gid, &entry.gid, sizeof gid))
			return i;
	}
	errno = ENODEV;
	die("no GID of RoCE v2 is this connection's address");
	return -1;
}

struct far_end {
	uint32_t qpn, psn;
	union ibv_gid gid;
};

/* With so many bytes of payload in a packet; requests begin with `psn`. */
static void raise_pair(struct ibv_qp *qp, int index, struct far_end far, uint32_t psn, int mtu, int retries)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_READ
	};
	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu == 256 ? IBV_MTU_256 : IBV_MTU_1024,
		.dest_qp_num = far.qpn,
		.rq_psn = far.psn,
		.max_dest_rd_atomic = READS_MAX,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = { .dgid = far.gid, .sgid_index = index, .hop_limit = 64 },
		},
	};
	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("RTR");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = 13, /* 34 ms */
		.retry_cnt = retries,
		.rnr_retry = 7,
		.sq_psn = psn,
		.max_rd_atomic = READS_MAX,
	};
	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		die("RTS");
}

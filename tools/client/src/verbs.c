/*
 * A queue pair of libibverbs that reads: what src/verbs.rs calls. Posting and polling are inline functions
 * of <infiniband/verbs.h>, which only C can call.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct gnomon_verbs {
	struct ibv_context *device;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory;
	uint32_t read_max;
	uint8_t port;
	int gid_index;
	/* A READ was given up: its completion may still come, and its bytes. */
	int is_over;
};

/* Longest wait for a completion, and a second: a NIC's retries end before, if it works; rxe's do not. */
enum { COMPLETION_S = 2 };

/*
 * Finds the port and the place where a device has this GID for RoCE v2; 0: it has. The same address stands in the
 * table for v1, too, mostly first: frames of v1 are not UDP, and reach no server here.
 */
static int find_gid(struct ibv_context *device, const union ibv_gid *gid, uint8_t *port, int *index)
{
	struct ibv_device_attr all;
	if (ibv_query_device(device, &all))
		return -1;
	for (int p = 1; p <= all.phys_port_cnt; p++) {
		struct ibv_port_attr its;
		if (ibv_query_port(device, p, &its))
			continue;
		for (int i = 0; i < its.gid_tbl_len; i++) {
			struct ibv_gid_entry entry;
			if (ibv_query_gid_ex(device, p, i, &entry, 0) || entry.gid_type != IBV_GID_TYPE_ROCE_V2 ||
			    memcmp(gid, &entry.gid, sizeof entry.gid))
				continue;
			*port = p;
			*index = i;
			return 0;
		}
	}
	return -1;
}

void gnomon_verbs_close(struct gnomon_verbs *v)
{
	if (v->qp)
		ibv_destroy_qp(v->qp);
	if (v->mr)
		ibv_dereg_mr(v->mr);
	if (v->cq)
		ibv_destroy_cq(v->cq);
	if (v->pd)
		ibv_dealloc_pd(v->pd);
	if (v->device)
		ibv_close_device(v->device);
	free(v->memory);
	free(v);
}

/* A queue pair on the device that has this address, for READs of that many bytes. NULL: none, errno says why. */
struct gnomon_verbs *gnomon_verbs_open(const uint8_t raw[16], uint32_t read_max)
{
	union ibv_gid gid;
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct gnomon_verbs *v = calloc(1, sizeof *v);
	memcpy(gid.raw, raw, sizeof gid.raw);
	for (int i = 0; v && list && i < n && !v->device; i++) {
		v->device = ibv_open_device(list[i]);
		if (v->device && find_gid(v->device, &gid, &v->port, &v->gid_index)) {
			ibv_close_device(v->device);
			v->device = NULL;
		}
	}
	if (list)
		ibv_free_device_list(list);
	if (!v)
		return NULL;
	errno = v->device ? errno : ENODEV;
	v->read_max = read_max;
	if (v->device && (v->memory = calloc(1, read_max)) && (v->pd = ibv_alloc_pd(v->device)) &&
	    (v->cq = ibv_create_cq(v->device, 2, NULL, NULL, 0)) &&
	    (v->mr = ibv_reg_mr(v->pd, v->memory, read_max, IBV_ACCESS_LOCAL_WRITE))) {
		struct ibv_qp_init_attr init = {
			.send_cq = v->cq,
			.recv_cq = v->cq,
			.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
			.qp_type = IBV_QPT_RC,
		};
		v->qp = ibv_create_qp(v->pd, &init);
	}
	if (!v->qp) {
		int why = errno ? errno : ENOMEM;
		gnomon_verbs_close(v);
		errno = why;
		return NULL;
	}
	return v;
}

uint32_t gnomon_verbs_qpn(const struct gnomon_verbs *v)
{
	return v->qp->qp_num;
}

/* Connects it, with a path MTU of 1024 bytes. 0, or an error number. */
int gnomon_verbs_connect(struct gnomon_verbs *v, uint32_t psn, uint32_t far_qpn, uint32_t far_psn, const uint8_t far_gid[16])
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = v->port };
	int why = ibv_modify_qp(v->qp, &attr,
				IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (why)
		return why;
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = far_qpn,
		.rq_psn = far_psn,
		.ah_attr = {
			.is_global = 1,
			.port_num = v->port,
			.grh = { .sgid_index = v->gid_index, .hop_limit = 64 },
		},
	};
	memcpy(attr.ah_attr.grh.dgid.raw, far_gid, 16);
	why = ibv_modify_qp(v->qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (why)
		return why;
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = 13, /* 34 ms */
		.retry_cnt = 7, /* the most; of rxe's any number: a server without a CPU for a while is not gone */
		.rnr_retry = 6,
		.sq_psn = psn,
		.max_rd_atomic = 1,
	};
	return ibv_modify_qp(v->qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

/*
 * Reads len bytes, of which there is room for into and in the registered memory. 0, or a status of a
 * completion; below 0, an error number. The queue pair's own retries bound the wait, and a deadline where they do not.
 */
int gnomon_verbs_read(struct gnomon_verbs *v, uint64_t va, uint32_t rkey, uint32_t len, uint8_t *into)
{
	struct ibv_sge sge = { .addr = (uintptr_t)v->memory, .length = len, .lkey = v->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = va, .rkey = rkey },
	}, *bad;
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };
	struct timespec begun, now;
	int n;
	if (v->is_over)
		return -ENOTCONN;
	if (len > v->read_max)
		return -EINVAL;
	if ((n = ibv_post_send(v->qp, &wr, &bad)))
		return -n;
	clock_gettime(CLOCK_MONOTONIC, &begun);
	while ((n = ibv_poll_cq(v->cq, 1, &wc)) == 0) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec - begun.tv_sec > COMPLETION_S)
			break;
	}
	if (n <= 0) {
		v->is_over = 1;
		return n ? -EIO : -ETIMEDOUT;
	}
	if (wc.status == IBV_WC_SUCCESS)
		memcpy(into, v->memory, len);
	return wc.status;
}

/*
 * One-sided reads by libibverbs: an example of a client, and what judges the server.
 *
 *     client HOST PORT check            values read by stag, overwritten, read again; refusals
 *     client HOST PORT storm READS SECONDS
 *                                       READs beside a writer, over whatever the network does: so many, or as many
 *                                       as there is time for, but a tenth at least
 *     client HOST PORT pair MTU         READs of a genuine responder's memory (responder.c): what there is to record
 *
 * docs/rdma.md has the formats, and why each check of open_image is needed. Prints a line for each check;
 * exit status 1 if one failed.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "verbs.h"

enum { HEAD = 32, TAIL = 8, VALUE_MAX = 65536, READ_MAX = HEAD + 250 + VALUE_MAX + TAIL };
enum { DEPTH = READS_MAX, MTU = 1024 };
enum { HIT = 0, MISS = 1, LONGER = 2 };

static int failures;

__attribute__((format(printf, 2, 3))) static void check(bool right, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	fputs(right ? "ok      " : "FAILED  ", stdout);
	vprintf(format, list);
	putchar('\n');
	fflush(stdout);
	va_end(list);
	failures += !right;
}

/* ---- the service over TCP ------------------------------------------------------------------ */

struct service {
	FILE *in, *out;
	struct sockaddr_storage own;
};

static struct service dial(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *to;
	struct service s;
	socklen_t len = sizeof s.own;
	if (getaddrinfo(host, port, &hints, &to))
		die("no such host");
	int fd = socket(to->ai_family, to->ai_socktype, 0);
	for (int tries = 0; connect(fd, to->ai_addr, to->ai_addrlen); tries++) {
		if (tries == 50)
			die("connect");
		usleep(200000);
		close(fd);
		fd = socket(to->ai_family, to->ai_socktype, 0);
	}
	freeaddrinfo(to);
	s.in = fdopen(fd, "r");
	s.out = fdopen(dup(fd), "w");
	if (getsockname(fd, (struct sockaddr *)&s.own, &len) || !s.in || !s.out)
		die("socket");
	return s;
}

static void hang_up(struct service *s)
{
	fclose(s->in);
	fclose(s->out);
}

/* What the service answers to what was written. */
static void answer(struct service *s, char *line, size_t room)
{
	fflush(s->out);
	if (!fgets(line, room, s->in))
		die("the service closed the connection");
}

struct stag {
	uint64_t stag;
	uint32_t len;
};

/* Stores a value and gives its stag. */
static struct stag store(struct service *s, const char *key, const uint8_t *value, size_t len)
{
	char line[256];
	struct stag t = { 0, 0 };
	fprintf(s->out, "ms %s %zu g\r\n", key, len);
	fwrite(value, 1, len, s->out);
	fputs("\r\n", s->out);
	answer(s, line, sizeof line);
	if (sscanf(line, "HD g%16lx,%u", &t.stag, &t.len) != 2) {
		printf("FAILED ms: %s", line);
		exit(1);
	}
	return t;
}

/* ---- a queue pair -------------------------------------------------------------------------- */

struct reader {
	struct ibv_context *device;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory; /* DEPTH buffers of READ_MAX */
};

/* rxe takes seven to mean any number. */
enum { RETRIES = 6, RETRIES_ANY = 7 };

/* Opens a queue pair, and connects it by the command `rdma`. It lives as long as the connection. */
static struct reader open_reader(struct service *s, int retries, int mtu)
{
	struct reader r = { 0 };
	r.device = open_device();
	r.memory = calloc(DEPTH, READ_MAX);
	r.pd = ibv_alloc_pd(r.device);
	r.cq = ibv_create_cq(r.device, 2 * DEPTH, NULL, NULL, 0);
	r.mr = ibv_reg_mr(r.pd, r.memory, (size_t)DEPTH * READ_MAX, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp_init_attr init = {
		.send_cq = r.cq,
		.recv_cq = r.cq,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	if (!r.mr || !r.cq || !(r.qp = ibv_create_qp(r.pd, &init)))
		die("no queue pair");

	union ibv_gid gid = gid_of(&s->own), server = { .raw = { 0 } };
	int index = gid_index(r.device, gid);
	uint32_t psn = rand() & 0xffffff, their_qpn, their_psn;
	char text[64], line[256];
	inet_ntop(AF_INET6, gid.raw, text, sizeof text);
	fprintf(s->out, "rdma %u %u %s %d\r\n", r.qp->qp_num, psn, text, mtu);
	answer(s, line, sizeof line);
	if (sscanf(line, "RDMA %u %u %63s", &their_qpn, &their_psn, text) != 3 ||
	    inet_pton(AF_INET6, text, server.raw) != 1) {
		printf("FAILED rdma: %s", line);
		exit(1);
	}

	raise_pair(r.qp, index, (struct far_end){ their_qpn, their_psn, server }, psn, mtu, retries);
	return r;
}

static void close_reader(struct reader *r)
{
	ibv_destroy_qp(r->qp);
	ibv_dereg_mr(r->mr);
	ibv_destroy_cq(r->cq);
	ibv_dealloc_pd(r->pd);
	ibv_close_device(r->device);
	free(r->memory);
}

/* R_Key: the upper half of the stag. Address: its lower half, and an offset of 0. */
static void post(struct reader *r, int buffer, struct stag t)
{
	uint8_t *to = r->memory + (size_t)buffer * READ_MAX;
	struct ibv_sge sge = { .addr = (uintptr_t)to, .length = t.len, .lkey = r->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = buffer,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = t.stag << 32, .rkey = t.stag >> 32 },
	}, *bad;
	memset(to, 0xa5, t.len);
	if (ibv_post_send(r->qp, &wr, &bad))
		die("post");
}

static struct ibv_wc completion(struct reader *r)
{
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };
	time_t until = time(NULL) + 60;
	int n;
	while ((n = ibv_poll_cq(r->cq, 1, &wc)) == 0 && time(NULL) < until)
		;
	if (n != 1)
		die("no completion within a minute");
	return wc;
}

static enum ibv_wc_status read_one(struct reader *r, struct stag t)
{
	post(r, 0, t);
	return completion(r).status;
}

/* ---- what a READ got ----------------------------------------------------------------------- */

struct image {
	bool torn;  /* of several versions: not to be used */
	bool mixed; /* and both ends are of one */
	uint8_t status, key_len;
	uint32_t value_len;
	const uint8_t *key, *value;
};

static struct image open_image(const uint8_t *bytes, uint32_t len)
{
	struct image i = { .status = bytes[0], .key_len = bytes[1] };
	memcpy(&i.value_len, bytes + 4, 4);
	i.value_len = be32toh(i.value_len);
	i.key = bytes + HEAD;
	i.value = i.key + i.key_len;
	size_t held = i.status == HIT ? i.key_len + (size_t)i.value_len : 0;
	/* The version at the end is the head's. */
	i.torn = memcmp(bytes + 28, bytes + len - TAIL, 4) != 0 || HEAD + held + TAIL > len;
	if (i.torn)
		return i;
	/* And what lies between is of it. */
	uint32_t crc = htobe32(crc32(crc32(0, bytes + 24, 8), i.key, held));
	i.torn = i.mixed = memcmp(&crc, bytes + len - 4, 4) != 0;
	return i;
}

/* Whether it is the value of this key. */
static bool is(struct image i, const char *key, const uint8_t *value, size_t value_len)
{
	return !i.torn && i.status == HIT && i.key_len == strlen(key) && !memcmp(i.key, key, i.key_len) &&
	       i.value_len == value_len && !memcmp(i.value, value, value_len);
}

static void fill(uint8_t *value, size_t len, uint32_t seed)
{
	for (size_t n = 0; n < len; n += 4) {
		seed = seed * 1664525 + 1013904223;
		memcpy(value + n, &seed, len - n < 4 ? len - n : 4);
	}
}

/* ---- the checks ---------------------------------------------------------------------------- */

static void sizes(struct service *s, struct reader *r)
{
	static const size_t lengths[] = { 1,    2,    3,    4,    5,     64,    100,   952,
					  980,  984,  985,  1000, 1024,  2000,  4096,  10000,
					  16384, 32768, 50001, 65535, 65536 };
	uint8_t *value = malloc(VALUE_MAX);
	int n = sizeof lengths / sizeof *lengths, first = 0, again = 0, kept = 0;
	for (int i = 0; i < n; i++) {
		char key[32];
		sprintf(key, "key%zu", lengths[i]);
		fill(value, lengths[i], i);
		struct stag t = store(s, key, value, lengths[i]);
		first += read_one(r, t) == IBV_WC_SUCCESS && is(open_image(r->memory, t.len), key, value, lengths[i]);
		fill(value, lengths[i], i + 1000);
		struct stag u = store(s, key, value, lengths[i]);
		kept += t.stag == u.stag && t.len == u.len;
		again += read_one(r, t) == IBV_WC_SUCCESS && is(open_image(r->memory, t.len), key, value, lengths[i]);
	}
	check(first == n, "values of 1 to 65,536 bytes are read by stag (%d of %d)", first, n);
	check(kept == n, "a set keeps the stag (%d of %d)", kept, n);
	check(again == n, "what was stored over them is read by the same stag (%d of %d)", again, n);
	free(value);
}

static void many(struct service *s, struct reader *r)
{
	enum { READS = 4000, KEYS = 32, LEN = 100 };
	struct stag tags[KEYS];
	uint8_t value[LEN];
	char key[32];
	int right = 0, posted = 0;
	for (int k = 0; k < KEYS; k++) {
		sprintf(key, "many%d", k);
		fill(value, LEN, k);
		tags[k] = store(s, key, value, LEN);
	}
	struct timespec from, to;
	int which[DEPTH];
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (; posted < DEPTH; posted++)
		post(r, posted, tags[which[posted] = posted % KEYS]);
	for (int done = 0; done < READS; done++) {
		struct ibv_wc wc = completion(r);
		int b = wc.wr_id;
		sprintf(key, "many%d", which[b]);
		fill(value, LEN, which[b]);
		right += wc.status == IBV_WC_SUCCESS &&
			 is(open_image(r->memory + (size_t)b * READ_MAX, tags[which[b]].len), key, value, LEN);
		if (posted < READS)
			post(r, b, tags[which[b] = posted++ % KEYS]);
	}
	clock_gettime(CLOCK_MONOTONIC, &to);
	double seconds = (to.tv_sec - from.tv_sec) + (to.tv_nsec - from.tv_nsec) / 1e9;
	check(right == READS, "%d READs, %d at a time (%.0f a second)", READS, DEPTH, READS / seconds);
}

static void statuses(struct service *s, struct reader *r)
{
	char line[256];
	uint8_t value[3000];
	fill(value, sizeof value, 5);
	struct stag t = store(s, "gone", value, 1000);
	fputs("delete gone\r\n", s->out);
	answer(s, line, sizeof line);
	enum ibv_wc_status got = read_one(r, t);
	struct image i = open_image(r->memory, t.len);
	check(got == IBV_WC_SUCCESS && !i.torn && i.status == MISS, "a stag of nothing is a status (%s)",
	      ibv_wc_status_str(got));
	store(s, "gone", value, sizeof value);
	got = read_one(r, t);
	i = open_image(r->memory, t.len);
	check(got == IBV_WC_SUCCESS && !i.torn && i.status == LONGER && i.value_len == sizeof value,
	      "a value that has grown is a status, with its length");
	store(s, "gone", value, 10);
	got = read_one(r, t);
	check(got == IBV_WC_SUCCESS && is(open_image(r->memory, t.len), "gone", value, 10), "one that has shrunk is read");
}

static void refusals(const char *host, const char *port)
{
	for (int n = 0; n < 3; n++) {
		struct service s = dial(host, port);
		struct reader r = open_reader(&s, RETRIES, MTU);
		uint8_t value[100] = { 0 };
		struct stag t = store(&s, "k", value, sizeof value);
		enum ibv_wc_status want = IBV_WC_REM_ACCESS_ERR, before = read_one(&r, t);
		const char *what = "a wrong R_Key";
		switch (n) {
		case 0:
			t.stag ^= (uint64_t)0xdeadbeef << 32;
			break;
		case 1:
			t.len = HEAD;
			what = "a READ with no place for the version";
			break;
		case 2:
			t.len = READ_MAX + 1;
			want = IBV_WC_REM_INV_REQ_ERR;
			what = "a READ of more than is read at once";
			break;
		}
		enum ibv_wc_status got = read_one(&r, t);
		check(before == IBV_WC_SUCCESS && got == want, "%s is refused (%s)", what,
		      ibv_wc_status_str(got));
		close_reader(&r);
		hang_up(&s);
	}
	/* A queue pair goes with its connection. */
	struct service s = dial(host, port), other = dial(host, port);
	struct reader r = open_reader(&s, RETRIES, MTU);
	uint8_t value[100] = { 0 };
	struct stag t = store(&other, "k", value, sizeof value);
	enum ibv_wc_status before = read_one(&r, t);
	hang_up(&s);
	usleep(200000);
	enum ibv_wc_status got = read_one(&r, t);
	check(before == IBV_WC_SUCCESS && got == IBV_WC_RETRY_EXC_ERR,
	      "without its connection a queue pair gets nothing (%s)", ibv_wc_status_str(got));
	close_reader(&r);
	hang_up(&other);
}

/* ---- of a genuine responder -------------------------------------------------------------- */

static void pair(const char *host, const char *port, int mtu)
{
	static const size_t lengths[] = { 1, 2, 3, 4, 45, 255, 256, 257, 600, 1024, 1025, 3000 };
	struct service s = dial(host, port);
	struct reader r = open_reader(&s, RETRIES, mtu);
	uint8_t *value = malloc(VALUE_MAX);
	int n = sizeof lengths / sizeof *lengths, right = 0;
	struct stag t;
	for (int i = 0; i < n; i++) {
		fill(value, lengths[i], i);
		t = store(&s, "k", value, lengths[i]);
		right += read_one(&r, t) == IBV_WC_SUCCESS && !memcmp(r.memory, value, lengths[i]);
	}
	check(right == n, "%d of %d READs with an MTU of %d", right, n, mtu);
	t.stag ^= (uint64_t)0xdeadbeef << 32;
	check(read_one(&r, t) == IBV_WC_REM_ACCESS_ERR, "a wrong R_Key is refused");
	close_reader(&r);
	hang_up(&s);
	free(value);
}

/* ---- beside a writer ----------------------------------------------------------------------- */

enum { STORM_KEYS = 8 };
static const size_t storm_lengths[STORM_KEYS] = { 60, 900, 1500, 3000, 5000, 9000, 20000, 40000 };

/* A value says how it goes on: whatever version it is of, all of it can be checked. */
static void storm_value(uint8_t *value, size_t len, uint32_t seed)
{
	memcpy(value, &seed, 4);
	fill(value + 4, len - 4, seed);
}

/* Long values are read less often: by their packets they would take most of the time. */
static int pick(void)
{
	int one = rand() % STORM_KEYS, other = rand() % STORM_KEYS;
	return one < other ? one : other;
}

static void writer(const char *host, const char *port)
{
	struct service s = dial(host, port);
	uint8_t *value = malloc(VALUE_MAX);
	char key[32];
	for (uint32_t n = 0;; n++) {
		int k = n % STORM_KEYS;
		sprintf(key, "storm%d", k);
		storm_value(value, storm_lengths[k], n);
		store(&s, key, value, storm_lengths[k]);
	}
}

static unsigned long hw_counter(const char *name)
{
	char path[128];
	unsigned long n = 0;
	snprintf(path, sizeof path, "/sys/class/infiniband/rxe0/ports/1/hw_counters/%s", name);
	FILE *f = fopen(path, "r");
	if (f && fscanf(f, "%lu", &n) != 1)
		n = 0;
	if (f)
		fclose(f);
	return n;
}

static void storm(const char *host, const char *port, int reads, int seconds)
{
	struct service s = dial(host, port);
	struct reader r = open_reader(&s, RETRIES_ANY, MTU);
	uint8_t *value = malloc(VALUE_MAX);
	struct stag tags[STORM_KEYS];
	int which[DEPTH], posted = 0, right = 0, torn = 0, mixed = 0, wrong = 0, failed = 0;
	char key[32];
	time_t until = time(NULL) + seconds;
	for (int k = 0; k < STORM_KEYS; k++) {
		sprintf(key, "storm%d", k);
		storm_value(value, storm_lengths[k], k);
		tags[k] = store(&s, key, value, storm_lengths[k]);
	}
	pid_t child = fork();
	if (child < 0)
		die("no process for the writer");
	if (child == 0) {
		/* It goes with this process, however that ends. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		writer(host, port);
	}
	for (; posted < 4; posted++)
		post(&r, posted, tags[which[posted] = pick()]);
	for (int done = 0; done < posted && !failed; done++) {
		struct ibv_wc wc = completion(&r);
		int b = wc.wr_id, k = which[b];
		const uint8_t *bytes = r.memory + (size_t)b * READ_MAX;
		if (wc.status != IBV_WC_SUCCESS) {
			printf("note    %s after %d\n", ibv_wc_status_str(wc.status), done);
			failed = 1;
			break;
		}
		struct image i = open_image(bytes, tags[k].len);
		if (i.torn) {
			torn++;
			mixed += i.mixed;
		} else {
			uint32_t seed;
			sprintf(key, "storm%d", k);
			memcpy(&seed, i.value, 4);
			storm_value(value, storm_lengths[k], seed);
			if (is(i, key, value, storm_lengths[k]))
				right++;
			else
				wrong++;
		}
		if (posted < reads && (posted < reads / 10 || time(NULL) < until)) {
			post(&r, b, tags[which[b] = pick()]);
			posted++;
		}
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	check(!failed && wrong == 0 && right + torn == posted && right > posted / 2,
	      "%d READs beside a writer: %d right, %d torn (%d between two ends of one version), %d wrong", posted,
	      right, torn, mixed, wrong);
	unsigned long retries = hw_counter("completer_retry_err") + hw_counter("retry_rnr_exceeded_err") +
				hw_counter("out_of_seq_request") + hw_counter("duplicate_request");
	printf("note    retries %lu, rcvd %lu, sent %lu\n", retries, hw_counter("rcvd_pkts"), hw_counter("sent_pkts"));
	close_reader(&r);
	hang_up(&s);
	free(value);
}

int main(int argc, char **argv)
{
	const char *what = argc > 3 ? argv[3] : "";
	if (argc != 4 + !strcmp(what, "pair") + 2 * !strcmp(what, "storm")) {
		fprintf(stderr, "client HOST PORT check|storm READS SECONDS|pair MTU\n");
		return 2;
	}
	srand(time(NULL) ^ getpid());
	if (!strcmp(what, "check")) {
		struct service s = dial(argv[1], argv[2]);
		/* On a busy machine six of 34 ms can be over before the server runs. */
		struct reader r = open_reader(&s, RETRIES_ANY, MTU);
		sizes(&s, &r);
		many(&s, &r);
		statuses(&s, &r);
		close_reader(&r);
		hang_up(&s);
		refusals(argv[1], argv[2]);
	} else if (!strcmp(what, "pair")) {
		pair(argv[1], argv[2], atoi(argv[4]));
	} else if (!strcmp(what, "storm")) {
		storm(argv[1], argv[2], atoi(argv[4]), atoi(argv[5]));
	}
	return failures != 0;
}

//! Which GPU goes with which part of the appliance, and which of a part's a worker uses.
//!
//! In: the NUMA nodes of GPUs, parts and workers, as far as they are known. Out: a part for each GPU, and an order in
//! which a worker prefers them. Without `--numa-node split` there is one part, and all GPUs are that one's.

/// The part of each GPU: the one on its node, or else the one with the fewest. A part without any takes one from the
/// part with the most, if that has two: a far GPU is better than none.
pub(super) fn parts(gpus: &[Option<u32>], parts: &[Option<u32>]) -> Vec<usize> {
    let near = |node: Option<u32>| parts.iter().position(|part| node.is_some() && *part == node);
    let mut placed: Vec<Option<usize>> = gpus.iter().map(|&node| near(node)).collect();
    let count =
        |placed: &[Option<usize>], part| placed.iter().filter(|p| **p == Some(part)).count();
    for n in 0..placed.len() {
        if placed.get(n) == Some(&None)
            && let Some(fewest) = (0..parts.len()).min_by_key(|&part| count(&placed, part))
            && let Some(place) = placed.get_mut(n)
        {
            *place = Some(fewest);
        }
    }
    for without in 0..parts.len() {
        let most = (0..parts.len()).max_by_key(|&part| count(&placed, part));
        if count(&placed, without) == 0
            && let Some(most) = most.filter(|&most| count(&placed, most) > 1)
            && let Some(place) = placed.iter_mut().rev().find(|place| **place == Some(most))
        {
            *place = Some(without);
        }
    }
    placed.into_iter().flatten().collect()
}

/// What a worker on `worker`'s node compares the GPUs of its part by: the least is the nearest, or of equally near ones
/// the one with the fewest `workers`.
pub(super) fn distance(gpu: Option<u32>, worker: Option<u32>, workers: usize) -> (bool, usize) {
    (worker.is_none() || gpu != worker, workers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_the_gpus_of_its_node() {
        let two = [Some(0), Some(1)];
        assert_eq!(parts(&[Some(0), Some(1)], &two), [0, 1]);
        assert_eq!(parts(&[Some(1), Some(0), Some(1)], &two), [1, 0, 1]);
        // Those of another node, or of none, go where the fewest are.
        assert_eq!(parts(&[None, Some(0), Some(7), None], &two), [1, 0, 0, 1]);
        // No part is without, as long as there are as many.
        assert_eq!(parts(&[Some(0), Some(0)], &two), [0, 1]);
        assert_eq!(parts(&[Some(1), Some(1), Some(1)], &[Some(0), Some(1), Some(2)]), [1, 2, 0]);
        assert_eq!(parts(&[Some(1)], &two), [1]);
        assert_eq!(parts(&[], &two), [0; 0]);
        // One part has them all.
        assert_eq!(parts(&[Some(0), None, Some(1)], &[None]), [0, 0, 0]);
        assert_eq!(parts(&[Some(0), None, Some(1)], &[Some(1)]), [0, 0, 0]);
    }

    #[test]
    fn workers_are_spread_over_the_gpus_of_their_node() {
        let choose = |gpus: &[(Option<u32>, usize)], worker| {
            let by = |n: &usize| gpus.get(*n).map(|&(gpu, workers)| distance(gpu, worker, workers));
            (0..gpus.len()).min_by_key(by)
        };
        let two = [(Some(0), 1), (Some(1), 0)];
        assert_eq!(
            [Some(0), Some(1), Some(2), None].map(|n| choose(&two, n)),
            [0, 1, 1, 1].map(Some)
        );
        let four = [two[0], two[1], (Some(0), 0), (None, 0)];
        assert_eq!([Some(0), Some(1), None].map(|n| choose(&four, n)), [2, 1, 1].map(Some));
        assert_eq!(choose(&[], Some(0)), None);
    }
}

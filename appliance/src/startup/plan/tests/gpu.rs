//! Plans of engines.

use super::*;

#[test]
fn engines_that_are_there_are_taken() {
    let m = Machine { has_simt: true, ..Machine::pretend() };
    for (args, engine) in
        [("", Engine::Cpu), ("--engine cpu", Engine::Cpu), ("--engine simt", Engine::Simt)]
    {
        let plan = plan_on(&m, args).unwrap();
        assert_eq!(plan.engine, engine);
        assert_eq!(plan.offload.is_some(), engine != Engine::Cpu);
    }
    let without = Machine { has_simt: false, ..Machine::pretend() };
    let error = plan_on(&without, "--engine simt").unwrap_err().to_string();
    assert!(error.contains("--engine simt is not available in this build"), "{error}");
}

#[test]
fn a_gpu_is_used_where_there_is_one() {
    let there =
        Machine { find_gpu: Some(|| Gpu::Found(vec!["one".to_owned()])), ..Machine::pretend() };
    assert_eq!(plan_on(&there, "").unwrap().engine, Engine::Auto);
    assert_eq!(plan_on(&there, "--engine gpu").unwrap().engine, Engine::Gpu);
    assert_eq!(plan_on(&there, "--engine cpu").unwrap().engine, Engine::Cpu);
    let none =
        Machine { find_gpu: Some(|| Gpu::Absent("none here".to_owned())), ..Machine::pretend() };
    assert_eq!(plan_on(&none, "").unwrap().engine, Engine::Cpu);
}

#[test]
fn how_a_gpu_is_used_follows_from_flags_and_memory() {
    let m = Machine { has_simt: true, ..Machine::pretend() };
    let offload = |args: &str| plan_on(&m, args).unwrap().offload.unwrap();
    let plan = offload("-m 64 --engine simt");
    assert_eq!((plan.mode.name(), plan.index.name()), ("launch", "setassoc"));
    assert_eq!(
        (plan.index_bytes, plan.deadline_ms, plan.verify_one_in.get()),
        (16 << 20, 10_000, 1024)
    );
    assert!(!plan.headers && offload("--engine simt --gpu-replies headers").headers);
    let whole = offload("--engine simt --gpu-replies complete --gpu-values 3");
    assert_eq!((whole.index.name(), whole.index_bytes), ("rows", 3 << 20));
    let plan = offload(
        "--engine simt --gpu-mode persistent --index cuckoo --index-memory 7 --index-cycle 50 \
         --index-every 3 --gpu-deadline 9 --gpu-verify-ratio 2 --gpu-device 1",
    );
    assert_eq!((plan.mode.name(), plan.index.name()), ("persistent", "cuckoo"));
    assert_eq!((plan.index_bytes, plan.deadline_ms, plan.verify_one_in.get()), (7 << 20, 9, 2));
    assert_eq!((plan.cycle_us, plan.every, plan.devices), (50, 3, vec![1]));
    assert_eq!(offload("--engine simt --gpu-device 1,3").devices, [1, 3]);
    let few = offload("--engine simt --gpu-mode persistent --gpu-sms 12");
    assert_eq!(few.multiprocessors, Some(12));
    let by_cycles = "--engine simt --gpu-schedule periodic --gpu-cycle 160";
    let plan = plan_on(&m, by_cycles).unwrap();
    assert_eq!((plan.batch_mode, plan.batch_cycle_us), (BatchMode::Periodic, Some(160)));
    assert_eq!(offload(by_cycles).cycle_us, 160);
    assert_eq!(plan_on(&m, "--index-cycle 50").unwrap().batch_cycle_us, None);
    for (flags, says) in [
        ("--gpu-values 3", "--gpu-values is for --gpu-replies complete"),
        ("--gpu-values 3 --gpu-replies headers", "--gpu-values is for --gpu-replies complete"),
        ("--index-memory 5 --gpu-replies complete", "say --gpu-values"),
        ("--gpu-device 0,2,0", "--gpu-device names 0 twice"),
        ("--gpu-sms 4", "--gpu-sms is for --gpu-mode persistent"),
        ("--gpu-device 0,1 --gpu-mode persistent", "--gpu-mode persistent is for one GPU"),
    ] {
        let error = plan_on(&m, flags).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn asking_for_a_gpu_tells_exactly_what_is_missing() {
    let said = |find_gpu: Option<fn() -> Gpu>| {
        let m = Machine { find_gpu, ..Machine::pretend() };
        plan_on(&m, "--engine gpu").unwrap_err().to_string()
    };
    assert_eq!(
        said(None),
        "--engine gpu: this build leaves out CUDA (the feature cuda): use --engine auto or cpu"
    );
    assert_eq!(
        said(Some(|| Gpu::Absent("no driver: install it".to_owned()))),
        "--engine gpu: no driver: install it; or use --engine auto or cpu"
    );
}

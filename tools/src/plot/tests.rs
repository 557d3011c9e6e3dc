use super::*;

#[test]
fn figures_read_well() {
    let want = [
        (0.0, "0"),
        (1.5e9, "1.50 G"),
        (2.25e6, "2.25 M"),
        (45_600.0, "45.6 K"),
        (250.0, "250"),
        (2.0, "2.00"),
        (0.5, "0.500"),
    ];
    for (value, text) in want {
        assert_eq!(figure(value), text);
    }
}

fn plot(scale: Scale, points: &[(f64, f64)]) -> String {
    let axis = Axis { label: "a & b", scale };
    let mut plot = Plot { title: "t<1>", x: axis, y: axis, curves: Vec::new() };
    points.iter().for_each(|p| plot.add("c<d", *p));
    plot.svg()
}

fn places(svg: &str) -> Vec<(f64, f64)> {
    let line = svg.lines().find(|l| l.starts_with("<polyline")).unwrap();
    let points = line.split('"').nth(1).unwrap();
    let number = |t: &str| t.parse::<f64>().unwrap();
    let pair = |p: &str| p.split_once(',').map(|(x, y)| (number(x), number(y))).unwrap();
    points.split_whitespace().map(pair).collect()
}

#[test]
fn every_point_has_its_place() {
    for scale in [Scale::Linear, Scale::Log] {
        let svg = plot(scale, &[(1.0, 10.0), (10.0, 100.0), (100.0, 1_000.0)]);
        let p = places(&svg);
        assert_eq!(p.len(), 3);
        assert!(p.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 > w[1].1), "{p:?}");
        assert!(p.iter().all(|(x, y)| (LEFT..=WIDTH).contains(x) && (TOP..=HEIGHT).contains(y)));
        let even = ((p[1].0 - p[0].0) - (p[2].0 - p[1].0)).abs() < 0.2;
        assert_eq!(even, scale == Scale::Log);
        for text in ["t&lt;1&gt;", "a &amp; b", ">c&lt;d<", "</svg>"] {
            assert!(svg.contains(text), "{text}");
        }
    }
}

#[test]
fn odd_points_are_left_out() {
    let odd = [(1.0, 1.0), (f64::NAN, 1.0), (2.0, f64::INFINITY), (0.0, 3.0), (4.0, 4.0)];
    assert_eq!(places(&plot(Scale::Log, &odd)).len(), 2);
    for points in [&[][..], &[(5.0, 5.0)], &[(0.0, 0.0)], &[(-1.0, -1.0), (1.0, 1e300)]] {
        for scale in [Scale::Linear, Scale::Log] {
            let svg = plot(scale, points);
            assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{svg}");
        }
    }
}

#[test]
fn marks_are_round_and_few() {
    let ticks =
        |scale, low: f64, high: f64| Extent::of(scale, [low, high].into_iter(), false).ticks();
    assert_eq!(ticks(Scale::Linear, 0.0, 97.0), [0.0, 20.0, 40.0, 60.0, 80.0]);
    assert_eq!(ticks(Scale::Log, 1.0, 16.0), [1.0, 2.0, 4.0, 8.0, 16.0]);
    for (low, high) in [(1e-9, 1e9), (3.0, 4.0), (1.0, 1e300)] {
        for scale in [Scale::Linear, Scale::Log] {
            assert!(ticks(scale, low, high).len() < 15, "{low} {high} {scale:?}");
        }
    }
}
